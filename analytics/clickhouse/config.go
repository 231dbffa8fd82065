package clickhouse

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

const (
	ownerUser  = "cadence"
	readerUser = "reader"
	// Database is the database that the embedded engine's DSNs name.
	Database = "cadence"
)

// configTemplate bounds what would otherwise grow with the data on a machine that
// also runs a model, and pins the zone: times are UTC everywhere.
var configTemplate = template.Must(template.New("config").Funcs(template.FuncMap{"xml": escapeXML}).Parse(`<clickhouse>
  <users_config>{{xml .UsersFile}}</users_config>
  <timezone>UTC</timezone>
  <max_server_memory_usage>{{.MemoryBytes}}</max_server_memory_usage>
  <mark_cache_size>{{.CacheBytes}}</mark_cache_size>
  <primary_index_cache_size>{{.CacheBytes}}</primary_index_cache_size>
  <index_mark_cache_size>{{.CacheBytes}}</index_mark_cache_size>
  <compiled_expression_cache_size>{{.CacheBytes}}</compiled_expression_cache_size>
  <default_database>default</default_database>
</clickhouse>
`))

// usersTemplate: the engine authenticates its own start-up session as default
// without a password, so default keeps exactly the rights of that session's script.
// A reader's own grants hold even where a client forgets the readonly setting.
var usersTemplate = template.Must(template.New("users").Parse(`<clickhouse>
  <profiles><default></default></profiles>
  <quotas><default></default></quotas>
  <users>
    <default>
      <password></password>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota>
      <grants>
        <query>GRANT SYSTEM LISTEN ON *.*</query>
        <query>GRANT CREATE ARBITRARY TEMPORARY TABLE ON *.*</query>
        <query>GRANT TABLE ENGINE ON File</query>
        <query>GRANT CREATE TABLE, SELECT ON _local.*</query>
      </grants>
    </default>
    <{{.Owner}}>
      <password_sha256_hex>{{.OwnerSHA256}}</password_sha256_hex>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota>
    </{{.Owner}}>
    <{{.Reader}}>
      <password_sha256_hex>{{.ReaderSHA256}}</password_sha256_hex>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota>
      <grants>
        <query>GRANT SHOW, SELECT ON *.*</query>
      </grants>
    </{{.Reader}}>
  </users>
</clickhouse>
`))

func escapeXML(s string) (string, error) {
	var b bytes.Buffer
	err := xml.EscapeText(&b, []byte(s))
	return b.String(), err
}

// writeConfig writes the engine's configuration below dir and returns its path.
func writeConfig(dir string, memoryBytes int64, c credentials) (string, error) {
	users := filepath.Join(dir, "users.xml")
	config := filepath.Join(dir, "config.xml")
	var b bytes.Buffer
	if err := usersTemplate.Execute(&b, map[string]string{
		"Owner": ownerUser, "OwnerSHA256": digest(c.owner),
		"Reader": readerUser, "ReaderSHA256": digest(c.reader),
	}); err != nil {
		return "", fmt.Errorf("clickhouse: users: %w", err)
	}
	if err := os.WriteFile(users, b.Bytes(), 0o600); err != nil {
		return "", fmt.Errorf("clickhouse: users: %w", err)
	}
	b.Reset()
	if err := configTemplate.Execute(&b, map[string]any{
		"UsersFile": users, "MemoryBytes": memoryBytes, "CacheBytes": memoryBytes / 32,
	}); err != nil {
		return "", fmt.Errorf("clickhouse: configuration: %w", err)
	}
	if err := os.WriteFile(config, b.Bytes(), 0o600); err != nil {
		return "", fmt.Errorf("clickhouse: configuration: %w", err)
	}
	return config, nil
}

func digest(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}
