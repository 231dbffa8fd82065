package ingress

import (
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"
)

// cors says which origins' pages may call. It is immutable.
type cors struct {
	origins []string
	any     bool
}

func newCORS(origins []string) *cors {
	return &cors{origins: origins, any: slices.Contains(origins, "*")}
}

// What pages may read of a response, beside its body.
const exposed = "Retry-After, X-Cadence-Bound-Ms, X-Cadence-Decision, X-Cadence-Predicted-Ms, X-Cadence-Queue-Ms, X-Cadence-Request-Id, X-Request-Id"

// allow sets the headers that let a page read the response.
func (o *cors) allow(c *fiber.Ctx) {
	origin := c.Get(fiber.HeaderOrigin)
	switch {
	case origin == "" || len(o.origins) == 0:
		return
	case o.any:
		c.Set(fiber.HeaderAccessControlAllowOrigin, "*")
	case slices.Contains(o.origins, origin):
		c.Set(fiber.HeaderAccessControlAllowOrigin, origin)
		c.Vary(fiber.HeaderOrigin)
	default:
		c.Vary(fiber.HeaderOrigin)
		return
	}
	c.Set(fiber.HeaderAccessControlExposeHeaders, exposed)
}

// preflight answers a browser's question whether a page may call; it has no key.
func (o *cors) preflight(c *fiber.Ctx) error {
	o.allow(c)
	c.Set(fiber.HeaderAccessControlAllowMethods, "GET, POST, OPTIONS")
	if want := c.Get(fiber.HeaderAccessControlRequestHeaders); want != "" {
		c.Set(fiber.HeaderAccessControlAllowHeaders, want) // whatever it is: headers open no door here
		c.Vary(fiber.HeaderAccessControlRequestHeaders)
	}
	c.Set(fiber.HeaderAccessControlMaxAge, "600")
	c.Status(http.StatusNoContent)
	return nil
}
