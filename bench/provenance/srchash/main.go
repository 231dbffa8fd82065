// Command srchash prints the hash of the engine's sources, for the linker: go run ./bench/provenance/srchash [ROOT]
package main

import (
	"fmt"
	"os"

	"github.com/cadence-slo/cadence/bench/provenance"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	hash, err := provenance.Hash(os.DirFS(root))
	if err != nil {
		fmt.Fprintln(os.Stderr, "srchash:", err)
		os.Exit(1)
	}
	fmt.Println(hash)
}
