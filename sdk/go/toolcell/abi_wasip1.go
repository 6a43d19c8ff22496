package toolcell

import (
	"encoding/json"
	"runtime/debug"
	"unsafe"
)

// The exports of a tool component in the canonical ABI of `toolcell:tool/tools@0.1.0`. Each call runs in a new instance, so
// that nothing needs to be freed.

// kept holds what the host reads or has written, so that the garbage collector leaves it alone.
var kept []any

// nothing is what empty texts and lists point to, aligned for every type.
var nothing [2]uint64

func init() {
	// The host must not be called while it writes arguments, and a collection reads the clock.
	debug.SetGCPercent(-1)
}

type abiString struct{ data, size uint32 }

type abiOption struct {
	isSome uint32 // the host reads the first byte
	value  abiString
}

type abiDefinition struct {
	name         abiString
	title        abiOption
	description  abiString
	inputSchema  abiString
	outputSchema abiOption
	hints        uint32 // the host reads the first byte
	annotations  abiString
}

type abiContent struct {
	tag           uint32
	first, second abiString
	mediaType     abiOption
}

type abiResult struct {
	isError uint32
	// Of an output: its parts and its structured value. Of an error: its kind and message.
	words [5]uint32
}

type abiEntry struct{ name, json abiString }

func address(p unsafe.Pointer) uint32 { return uint32(uintptr(p)) }

func lower(text string) abiString {
	if text == "" {
		return abiString{address(unsafe.Pointer(&nothing)), 0}
	}
	kept = append(kept, text)
	return abiString{address(unsafe.Pointer(unsafe.StringData(text))), uint32(len(text))}
}

func lowerOption(text string) abiOption {
	option := abiOption{value: lower(text)}
	if text != "" {
		option.isSome = 1
	}
	return option
}

func lift(data unsafe.Pointer, size uint32) string {
	if size == 0 {
		return ""
	}
	return string(unsafe.Slice((*byte)(data), size))
}

//go:wasmexport cabi_realloc
func cabiRealloc(old unsafe.Pointer, oldSize, alignment, size uint32) unsafe.Pointer {
	if size == 0 {
		return unsafe.Pointer(&nothing)
	}
	// Words of 8 bytes, the largest alignment of the canonical ABI.
	memory := make([]uint64, (size+7)/8)
	if oldSize > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&memory[0])), size), unsafe.Slice((*byte)(old), oldSize))
	}
	kept = append(kept, memory)
	return unsafe.Pointer(&memory[0])
}

//go:wasmexport toolcell:tool/tools@0.1.0#definitions
func definitions() unsafe.Pointer {
	list := make([]abiDefinition, len(tools)+1)
	for i, t := range tools {
		list[i] = abiDefinition{
			name:         lower(t.name),
			title:        lowerOption(t.options.Title),
			description:  lower(t.description),
			inputSchema:  lower(t.schema),
			outputSchema: abiOption{value: lower("")},
			hints:        t.options.hints(),
			annotations:  lower(""),
		}
	}
	result := &abiString{address(unsafe.Pointer(&list[0])), uint32(len(tools))}
	kept = append(kept, list, result)
	return unsafe.Pointer(result)
}

//go:wasmexport toolcell:tool/tools@0.1.0#run
func run(id unsafe.Pointer, idSize uint32, name unsafe.Pointer, nameSize uint32, arguments unsafe.Pointer,
	argumentsSize uint32, context unsafe.Pointer, contextSize uint32) unsafe.Pointer {
	call := Call{ID: lift(id, idSize), Values: map[string]json.RawMessage{}}
	for _, entry := range unsafe.Slice((*abiEntry)(context), contextSize) {
		name := lift(pointer(entry.name.data), entry.name.size)
		call.Values[name] = json.RawMessage(lift(pointer(entry.json.data), entry.json.size))
	}
	called, given := lift(name, nameSize), lift(arguments, argumentsSize)
	kept = nil
	debug.SetGCPercent(100)
	result, failure := callTool(called, []byte(given), call)
	debug.SetGCPercent(-1)
	return lowerResult(result, failure)
}

func pointer(address uint32) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(nil), uintptr(address))
}

func lowerResult(result Result, failure *Error) unsafe.Pointer {
	lowered := &abiResult{}
	kept = append(kept, lowered)
	if failure != nil {
		message := lower(failure.Message)
		lowered.isError = 1
		lowered.words = [5]uint32{uint32(failure.Kind), message.data, message.size}
		return unsafe.Pointer(lowered)
	}
	parts := make([]abiContent, len(result.Parts)+1)
	for i, part := range result.Parts {
		lowered := abiContent{tag: part.tag, first: lower(part.first), second: lower(string(part.second))}
		lowered.mediaType = lowerOption(part.mediaType)
		parts[i] = lowered
	}
	kept = append(kept, parts)
	structured := lowerOption(result.structured)
	lowered.words = [5]uint32{
		address(unsafe.Pointer(&parts[0])), uint32(len(result.Parts)),
		structured.isSome, structured.value.data, structured.value.size,
	}
	return unsafe.Pointer(lowered)
}
