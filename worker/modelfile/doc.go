// Package modelfile finds model files on disk, makes synthetic ones and downloads others.
//
// All models live in one folder, [CacheDir] unless a caller names another. Files there are complete: a download grows in
// NAME.part and gets its name only after its SHA-256 was checked, a synthetic model is written beside and renamed. NAME.sha256
// records what was verified, in the format of sha256sum. One file lock per model, .NAME.lock, keeps two processes from
// working on the same file; the second waits and then finds it done.
//
//	         ┌────────────── transient error, wait ◄─────────────┐
//	         ▼                                                    │
//	lock ─► request from the end of NAME.part ─► append, hash ────┤
//	         ▲                                                    │
//	         └── start over: no range support, other file ◄───────┤
//	                                                              ▼
//	                             verify hash, inspect head, sync, rename, unlock
//
// [Pull] resumes only when the server proves with a validator (strong ETag or Last-Modified) that the rest belongs to the same
// file. It follows redirects to http and https alone, and none from https to http.
//
// Functions may be called from any goroutine; progress callbacks run on the caller's.
package modelfile
