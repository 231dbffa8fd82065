package services

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// ProbeCmd asks an address for its health; an image without a shell has nothing else.
type ProbeCmd struct {
	URL     string        `arg:"" help:"address, such as http://127.0.0.1:8080/ready"`
	Timeout time.Duration `help:"time limit" default:"2s"`
}

// Help implements kong.HelpProvider.
func (ProbeCmd) Help() string {
	return "The exit status is 1 unless it answers 200.\n\nExample:\n  cadence probe http://127.0.0.1:8080/ready --timeout 1s"
}

// Run returns an error unless the address answers 200.
func (c *ProbeCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", c.URL, resp.Status)
	}
	return nil
}
