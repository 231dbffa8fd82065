// Package control puts admission before the simulator's pipeline: the controller that an ingress runs, fed with what the
// simulator shows of its pool. It knows every arm that admission is compared with ([Arms]), those included that are a limit of the
// pipeline's own; what is fitted once is fitted to a run that lets everything in ([Collect]).
package control
