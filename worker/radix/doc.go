// Package radix keeps the prefixes whose KV cache can be used again: a tree over token ids, in whole pages, each node
// naming the pages of kv that hold its edge and each leaf the sequence id whose cells in the engine hold the whole
// path from the root. It is pure: it moves no data, holds no page itself (callers Hold and Drop what it reports), and
// has a logical clock. One goroutine (the engine's owner) drives it.
//
//	Match ─► Pin ─► (the sequence shares the pages and prefills the rest) ─► Insert ─► … ─► Unpin
//	                                                      under pressure: Evict, least recently used leaf first
//
// Ownership. The engine's cells are shared between sequence ids without copying, so a cached path costs a sequence id
// and nothing else. A leaf is owned by the id that inserted it, which may still run; when it ends, its id is trimmed to
// the path and stays. An interior node needs no owner: whoever owns a leaf below holds its cells too. So an id is freed
// when its leaf grows a child (Inserted.Freed), and handed on, trimmed, when a node's last child goes (Evicted.Keep).
//
// Boundaries. An edge is split where an inserted path leaves it, and where a Pin or an Insert ends inside it, so that
// nothing behind is protected; of the two nodes the one further from the root keeps its identity. Nodes are never
// merged: a boundary also marks where eviction may stop. A path of n pages has at most n nodes.
//
// Eviction. A pin protects a node and its whole path. Match makes the nodes that it matched the most recently used,
// including the last if it is matched in part; Insert those of its path. Evict takes the unpinned leaf whose use is
// longest ago; two leaves never have the same time, because one call touches one path.
//
// Scopes. Prefixes never cross scopes, which are compared as strings, exactly. Within a node, children are found by a
// hash of their first page and verified against its tokens.
//
// Invariants, which Check verifies: every leaf has one owner, no interior node has one, no id owns two leaves;
// children of a node differ in their first page; the pins of a node are its own and those of its children; a node has
// a page for every pageTokens tokens of its edge, and no page is in two nodes; the list of candidates for eviction
// holds the unpinned leaves, each once, in order of use; free and used nodes are all nodes.
//
// Nothing in Match, Pin, Unpin, Insert and Evict allocates once the nodes' memory has reached its size, but for the
// first insertion into a scope.
package radix
