package ladder

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed defs/*.yaml
var embedded embed.FS

// Embedded returns the names of the ladders that come with the package, in order of their names.
func Embedded() []string {
	files, err := fs.Glob(embedded, "defs/*.yaml")
	if err != nil {
		return nil // the pattern is right
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), path.Ext(f))
	}
	return files
}

// Text returns the file of an embedded ladder, comments included, or an error that wraps ErrDefinition.
func Text(name string) ([]byte, error) {
	b, err := embedded.ReadFile("defs/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("%w: no ladder is called %q; there are %s", ErrDefinition, name, strings.Join(Embedded(), ", "))
	}
	return b, nil
}
