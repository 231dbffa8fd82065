// Package control puts admission before the simulator's pipeline: the controller that an ingress runs, fed with what the
// simulator shows of its pool.
package control
