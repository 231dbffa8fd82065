// Package text turns token pieces into the text that a client may see: valid UTF-8 only, cut at stop strings, never
// taken back. It is pure; a Stream is owned by one goroutine.
//
// Bytes pass two stages. The first holds back the incomplete tail of a character and replaces what can never become
// one by U+FFFD, one for each maximal subpart (Unicode 3.9, as in the WHATWG decoder). The second holds back what may
// be the beginning of a stop string and releases it when it cannot match any more; the first stop string to be
// complete ends the text before its beginning.
//
// The text after k pieces depends only on their concatenated bytes, not on how they are cut: a request that goes on
// elsewhere feeds the pieces already sent, discards what comes out, and continues exactly.
package text
