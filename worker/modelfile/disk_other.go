//go:build !linux && !darwin

package modelfile

// freeBytes is not known here; a full disk shows when writing.
func freeBytes(string) (uint64, bool) { return 0, false }
