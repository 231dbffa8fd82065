// Package gbm fits a quantile of a label with gradient boosted trees, and predicts it. Histograms of at most 255 bins per
// feature, trees grown best leaf first, the pinball loss, leaf values that minimise the loss in the leaf, and constraints
// that make the result monotone in chosen features. The method is that of LightGBM (Ke et al., NeurIPS 2017) with its
// renewal of leaf values; the bounds that keep a tree monotone are those of its basic method.
//
// The package is pure: no clock, no I/O, no goroutine. Randomness is an argument, and the same data, parameters and seed
// give the same model. A [Model] does not change and is safe for concurrent use. Train owns nothing after it returns: the
// model shares no memory with the data.
//
// Invariants:
//   - features, labels and weights are finite; what is not is refused with its row and feature;
//   - a row goes left at a node iff its feature is at most the node's threshold;
//   - for a feature constrained to +1 (−1), raising it alone never lowers (raises) a prediction, for any inputs at all;
//   - every leaf was fitted on at least Params.MinRows rows;
//   - without constraints and without sampling of rows, a round never raises the training loss.
package gbm
