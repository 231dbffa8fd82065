package worker

// Probe measures an engine, as a worker does at start-up.
var Probe = probe
