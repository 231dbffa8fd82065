// Package control puts admission before the simulator's pipeline: the controller that an ingress runs, fed with what the
// simulator shows of its pool. It knows every arm that admission is compared with ([Arms]), those included that are a limit of the
// pipeline's own; what is fitted once is fitted to a run that lets everything in ([Collect]).
//
// What a controller knows is what an ingress would: of the cache an estimate at the arrival, of engines the profile that it believes,
// and of what another ingress has let in only what is told with a delay. A shift of the engines' true speed is sim.Config.Speeds.
//
// A [Control] has the simulator's owner. Invariant: it remembers what was admitted and has no record yet, nothing else.
package control
