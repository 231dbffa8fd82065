// Package artifact is the form of a learned model: one file with what it was learned from, the trees, the state of the calibration and
// the lengths of answers. The trainer writes it, an ingress reads it, and neither trusts the store between them.
//
// The file, little endian:
//
//	"cdncemdl" version:u16
//	4 × length:u32            of the sections, in this order
//	header                    JSON, see [Header]
//	trees                     see gbm.Model.Encode
//	calibration               JSON, see [Calibration]
//	lengths                   half-life:f64 classes:u32, per class 160 × f64: at risk, ended, tokens, squares by bin
//	SHA-256                   32 bytes, of all before
//
// The hash tells of damage, not of who wrote it. What it covers is still not trusted: [Decode] takes sections that are whole, in range
// and fit together, and needs memory in proportion to the file, and some MiB for the windows of calibration. What it returns predicts and
// calibrates without panic.
//
// The package is pure: the time of creation comes from the caller.
package artifact
