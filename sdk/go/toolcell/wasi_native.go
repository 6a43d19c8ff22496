//go:build !wasip1

package toolcell

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"sort"
	"strings"
	"time"
)

// Outside of a component, for tests, everything is granted.

func fileError(err error) error {
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return Denied("%v", err)
}

// ReadFile reads a granted file.
func ReadFile(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	return content, fileError(err)
}

// WriteFile writes a granted file, in place of what it had.
func WriteFile(path string, content []byte) error {
	return fileError(os.WriteFile(path, content, 0o666))
}

// ReadDir lists the names in a granted directory, sorted.
func ReadDir(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	sort.Strings(names)
	return names, fileError(err)
}

// Environ returns the granted environment variables by their names.
func Environ() map[string]string {
	variables := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		variables[name] = value
	}
	return variables
}

// Now returns the time, in UTC. time.Now does not tell it in a component.
func Now() time.Time { return time.Now().UTC() }

// RandomBytes returns bytes that nobody can guess. Those of crypto/rand are the same in each call of a component.
func RandomBytes(size int) []byte {
	data := make([]byte, size)
	rand.Read(data)
	return data
}
