package ingress

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"

	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/schema"
	"github.com/gofiber/fiber/v2"
)

// defaultTenant is who calls an open API without naming a tenant.
const defaultTenant = "default"

// tenants tells who a request is from. Without keys the API is open. It is immutable.
type tenants struct {
	keys []tenantKey
}

type tenantKey struct {
	digest [sha256.Size]byte
	tenant string
}

func newTenants(keys []string) (*tenants, error) {
	t := &tenants{}
	seen := map[[sha256.Size]byte]bool{}
	for i, s := range keys {
		tenant, key, ok := strings.Cut(s, ":")
		switch {
		case !ok || !schema.ValidName(tenant):
			return nil, fmt.Errorf("%w: api-keys[%d], want tenant:key with a tenant of 1 to 64 letters, digits, _ and -", ErrConfig, i)
		case key == "" || strings.ContainsAny(key, " \t\r\n,"):
			return nil, fmt.Errorf("%w: api-keys[%d] of tenant %s, want a key without spaces and commas", ErrConfig, i, tenant)
		}
		d := sha256.Sum256([]byte(key))
		if seen[d] {
			return nil, fmt.Errorf("%w: api-keys[%d] of tenant %s is given twice", ErrConfig, i, tenant)
		}
		seen[d] = true
		t.keys = append(t.keys, tenantKey{d, tenant})
	}
	return t, nil
}

// of returns whose request it is, or what to answer. With keys, the key alone says so.
func (t *tenants) of(c *fiber.Ctx) (string, *openai.Error) {
	if len(t.keys) > 0 {
		return t.byKey(c.Get(fiber.HeaderAuthorization))
	}
	name := c.Get("X-Tenant")
	if name == "" {
		return defaultTenant, nil
	}
	if !schema.ValidName(name) {
		return "", openai.InvalidParameter("X-Tenant", "expected 1 to 64 letters, digits, '_' and '-'")
	}
	return strings.Clone(name), nil
}

// byKey compares digests, and all of them: the time that it takes says nothing about any key.
func (t *tenants) byKey(header string) (string, *openai.Error) {
	scheme, key, _ := strings.Cut(header, " ")
	digest := sha256.Sum256([]byte(strings.TrimSpace(key)))
	tenant := ""
	for i := range t.keys {
		if subtle.ConstantTimeCompare(digest[:], t.keys[i].digest[:]) == 1 {
			tenant = t.keys[i].tenant
		}
	}
	if tenant == "" || !strings.EqualFold(scheme, "Bearer") {
		return "", openai.Unauthorized()
	}
	return tenant, nil
}
