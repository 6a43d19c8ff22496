//go:build !wasip1

package toolcell

import "fmt"

// Level is the severity of a message.
type Level uint32

// Severities, as in the contract.
const (
	Trace Level = iota
	Debug
	Info
	Warn
	Failure
)

// Messages are those that were logged, for tests.
var Messages []string

// Log keeps a message in Messages.
func Log(level Level, format string, values ...any) {
	Messages = append(Messages, fmt.Sprintf(format, values...))
}

// Progress does nothing outside of a component.
func Progress(done, total uint64, message string) {}
