package toolcell

import (
	"fmt"
	"unsafe"
)

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

//go:wasmimport toolcell:tool/log@0.1.0 write
func hostLog(level uint32, text unsafe.Pointer, size uint32)

//go:wasmimport toolcell:tool/progress@0.1.0 report
func hostProgress(done uint64, hasTotal uint32, total uint64, hasMessage uint32, text unsafe.Pointer, size uint32)

// Log writes a message for the user. The model does not read it.
func Log(level Level, format string, values ...any) {
	text := fmt.Sprintf(format, values...)
	hostLog(uint32(level), unsafe.Pointer(unsafe.StringData(text)), uint32(len(text)))
}

// Progress reports to the user that done of total steps are completed; a total of 0 is unknown.
func Progress(done, total uint64, message string) {
	hasTotal, hasMessage := uint32(0), uint32(0)
	if total > 0 {
		hasTotal = 1
	}
	if message != "" {
		hasMessage = 1
	}
	hostProgress(done, hasTotal, total, hasMessage, unsafe.Pointer(unsafe.StringData(message)), uint32(len(message)))
}
