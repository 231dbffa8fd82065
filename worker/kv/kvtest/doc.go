// Package kvtest holds allocators that are obviously right and slow, to be run in lockstep with those of package kv:
// they keep no counts, and find out by looking at everything. Which page is handed out is the same, by kv's rules.
package kvtest
