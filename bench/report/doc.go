// Package report turns a directory of records into tables, figures and one page. It reads nothing but the records (see
// package record) and, for the order of arms, ladder.json if the directory has one.
//
// Runs that are invalid, partial or did not end are listed and not counted. Every value is a mean over runs with the
// least and the largest beside it; arms are compared in pairs of runs with the same seed at the same rate, within one
// block where there is one. A value that rests on requests which were given up is marked ≥, and ‡
// if it leaves them out; a ratio of such values is marked ≤, ≥ or ?. Replicates of a seed count as one pair, arms of
// ladder.json without runs keep their places, and every note counts what is missing.
//
// [Load] does the reading, tables are pure functions of what it returns; the CDFs and the timeline read the requests of
// the runs they show again.
package report
