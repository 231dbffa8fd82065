package services

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// variables are the environment variables that a command knows, its parents' included.
func variables(t *testing.T, words []string) []string {
	t.Helper()
	k, err := parser(&CLI{}, t.Output(), t.Output(), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	n := k.Model.Node
	for _, w := range words {
		i := slices.IndexFunc(n.Children, func(c *kong.Node) bool { return c.Name == w })
		if i < 0 {
			t.Fatalf("there is no command %q", words)
		}
		n = n.Children[i]
	}
	var names []string
	for _, group := range n.AllFlags(false) {
		for _, f := range group {
			names = append(names, f.Envs...)
		}
	}
	return names
}

// A variable that no flag of the service has would be silently without effect.
func TestComposeVariablesAreFlags(t *testing.T) {
	o, err := cli.NewProjectOptions([]string{"../docker-compose.yml"}, cli.WithWorkingDirectory(".."), cli.WithNormalization(true), cli.WithConsistency(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := o.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	image := dockerfile(t)
	checked := 0
	for name, s := range project.Services {
		if s.Image != "cadence:local" {
			continue
		}
		checked++
		t.Run(name, func(t *testing.T) { checkService(t, s, image) })
	}
	if checked != 5 {
		t.Errorf("%d services of cadence, want ingress, scheduler, worker, analytics and trainer", checked)
	}
}

func checkService(t *testing.T, s types.ServiceConfig, image map[string]string) {
	known := variables(t, s.Command)
	for key, value := range image {
		t.Setenv(key, value)
	}
	for key, value := range s.Environment {
		switch {
		case value == nil:
			t.Errorf("%s has no value", key)
			continue
		case strings.HasPrefix(key, "CADENCE_") && !slices.Contains(known, key):
			t.Errorf("%s is no flag of `cadence %s`", key, strings.Join(s.Command, " "))
		}
		t.Setenv(key, *value)
	}
	c, err := parse(t, s.Command...)
	if err != nil {
		t.Fatal(err)
	}
	for flag, url := range map[string]string{"ingress": c.Ingress.Nats.URL, "scheduler": c.Scheduler.Nats.URL, "worker": c.Worker.Nats.URL, "analytics": c.Analytics.Nats.URL} {
		if flag == s.Command[0] && url != *s.Environment["CADENCE_NATS_URL"] {
			t.Errorf("%s has the server %q", flag, url)
		}
	}
	if s.HealthCheck == nil || len(s.HealthCheck.Test) < 2 || s.HealthCheck.Test[1] != "cadence" {
		t.Fatalf("health check %v", s.HealthCheck)
	}
	if _, err := parse(t, s.HealthCheck.Test[2:]...); err != nil {
		t.Errorf("health check: %v", err)
	}
}

// dockerfile returns the image's own variables, which must be flags of what it runs, and so must its default command.
func dockerfile(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	known := variables(t, []string{"up"})
	for _, m := range regexp.MustCompile(`(CADENCE_[A-Z_]+)=(\S+)`).FindAllStringSubmatch(string(text), -1) {
		env[m[1]] = m[2]
		if !slices.Contains(known, m[1]) {
			t.Errorf("deploy/Dockerfile sets %s, which is no flag of `cadence up`", m[1])
		}
	}
	command := regexp.MustCompile(`(?m)^CMD \["(.*)"\]$`).FindStringSubmatch(string(text))
	if len(env) == 0 || command == nil {
		t.Fatal("deploy/Dockerfile has no CADENCE_ variables or no CMD")
	}
	if _, err := parse(t, strings.Split(command[1], `", "`)...); err != nil {
		t.Errorf("CMD %s: %v", command[1], err)
	}
	return env
}
