// Command cadence is the whole of Cadence: every service, the tools around them and the harness.
package main

import (
	"os"

	"github.com/cadence-slo/cadence/analytics/clickhouse"
	"github.com/cadence-slo/cadence/services"
)

// version is set by the linker.
var version = "dev"

func main() {
	clickhouse.MaybeChild()
	os.Exit(services.Main(os.Args[1:], version, os.Stdout, os.Stderr))
}
