package ingress

import (
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/schema"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
)

// readBuffer is the longest header of a request, in bytes.
const readBuffer = 8 << 10

// routes builds the HTTP application.
func (s *Server) routes() *fiber.App {
	app := fiber.New(fiber.Config{
		CaseSensitive: true,
		BodyLimit:     s.cfg.MaxBody,
		// The listener's limit comes first.
		Concurrency:                  s.cfg.MaxConnections + rejecting,
		ReadTimeout:                  s.cfg.HeaderTimeout,
		IdleTimeout:                  s.cfg.IdleTimeout,
		ReadBufferSize:               readBuffer,
		DisableStartupMessage:        true,
		DisablePreParseMultipartForm: true,
		ErrorHandler:                 s.routeError,
	})
	// Writes have their deadline in conn: a stream may last longer than any of them. A body that is not here with its
	// header gets time of its own.
	app.Server().HeaderReceived = func(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
		if n := h.ContentLength(); n >= 0 && n <= readBuffer {
			return fasthttp.RequestConfig{}
		}
		return fasthttp.RequestConfig{ReadTimeout: s.cfg.BodyTimeout}
	}
	app.Use(s.guard)
	for path, kind := range map[string]schema.Kind{"/v1/chat/completions": schema.KindChat, "/v1/completions": schema.KindCompletion} {
		app.Post(path, func(c *fiber.Ctx) error { return s.generate(c, kind) })
		app.Add(http.MethodGet, path, func(c *fiber.Ctx) error { return s.comeBack(c, kind) })
	}
	app.Get("/v1/models", s.getModels)
	app.Get("/v1/models/*", s.getModel)
	app.Get("/health", s.getHealth)
	app.Get("/ready", s.getReady)
	app.Get("/stats", s.getStats)
	app.Get("/metrics", adaptor.HTTPHandler(promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Registry: s.registry})))
	return app
}

// guard stands before every handler.
func (s *Server) guard(c *fiber.Ctx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic", "path", strings.Clone(c.Path()), "panic", p, "stack", string(debug.Stack()))
			err = s.reject(c, openai.Internal())
		}
	}()
	if strings.HasPrefix(c.Path(), "/v1/") {
		if c.Method() == http.MethodOptions {
			return s.cors.preflight(c)
		}
		s.cors.allow(c)
	}
	return c.Next()
}

func (s *Server) getModels(c *fiber.Ctx) error {
	if _, e := s.tenants.of(c); e != nil {
		return s.reject(c, e)
	}
	list := make([]openai.Model, 0, len(s.models.byName))
	for _, m := range s.models.list {
		list = append(list, m.entry(m.Name))
		for _, alias := range m.Aliases {
			list = append(list, m.entry(alias))
		}
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Send(append(openai.AppendModels(nil, list), '\n'))
}

func (s *Server) getModel(c *fiber.Ctx) error {
	if _, e := s.tenants.of(c); e != nil {
		return s.reject(c, e)
	}
	name, err := url.PathUnescape(c.Params("*"))
	m := s.models.byName[name]
	if err != nil || m == nil {
		return s.reject(c, openai.ModelNotFound(strings.Clone(name)))
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Send(append(openai.AppendModel(nil, m.entry(name)), '\n'))
}
