package toolcell

import (
	"bytes"
	"fmt"
	"sort"
	"strings"
	"time"
	"unsafe"
)

// What the functions of WASI return is stored by the host, by the offsets of the canonical ABI.
type returned struct{ words [8]uint64 }

func (r *returned) at(offset uintptr) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(&r.words), offset)
}
func (r *returned) u8(offset uintptr) uint8   { return *(*uint8)(r.at(offset)) }
func (r *returned) u32(offset uintptr) uint32 { return *(*uint32)(r.at(offset)) }
func (r *returned) u64(offset uintptr) uint64 { return *(*uint64)(r.at(offset)) }

// text copies a text or bytes whose address and size are stored.
func (r *returned) text(offset uintptr) string {
	return (*(*abiString)(r.at(offset))).lift()
}

func (s abiString) lift() string { return lift(pointer(s.data), s.size) }

// list returns the elements of a list whose address and length are stored.
func list[T any](r *returned) []T {
	size := r.u32(4)
	if size == 0 {
		return nil
	}
	return unsafe.Slice((*T)(pointer(r.u32(0))), size)
}

// passed returns the address of a text for the host.
func passed(text string) (unsafe.Pointer, uint32) {
	if text == "" {
		return unsafe.Pointer(&nothing), 0
	}
	return unsafe.Pointer(unsafe.StringData(text)), uint32(len(text))
}

//go:wasmimport wasi:filesystem/preopens@0.2.12 get-directories
func getDirectories(returned unsafe.Pointer)

//go:wasmimport wasi:filesystem/types@0.2.12 [method]descriptor.open-at
func openAt(dir int32, pathFlags uint32, path unsafe.Pointer, size uint32, openFlags, flags uint32, returned unsafe.Pointer)

//go:wasmimport wasi:filesystem/types@0.2.12 [method]descriptor.read
func readFrom(file int32, length, offset uint64, returned unsafe.Pointer)

//go:wasmimport wasi:filesystem/types@0.2.12 [method]descriptor.write
func writeTo(file int32, data unsafe.Pointer, size uint32, offset uint64, returned unsafe.Pointer)

//go:wasmimport wasi:filesystem/types@0.2.12 [method]descriptor.read-directory
func readDirectory(dir int32, returned unsafe.Pointer)

//go:wasmimport wasi:filesystem/types@0.2.12 [method]directory-entry-stream.read-directory-entry
func nextEntry(stream int32, returned unsafe.Pointer)

//go:wasmimport wasi:filesystem/types@0.2.12 [resource-drop]descriptor
func closeFile(file int32)

//go:wasmimport wasi:cli/environment@0.2.12 get-environment
func getEnvironment(returned unsafe.Pointer)

//go:wasmimport wasi:clocks/wall-clock@0.2.12 now
func wallClock(returned unsafe.Pointer)

//go:wasmimport wasi:random/random@0.2.12 get-random-bytes
func getRandomBytes(size uint64, returned unsafe.Pointer)

// chunk is the number of bytes that are read or written at once.
const chunk = 1 << 20

// Flags of WASI.
const (
	follow        = 1
	openCreate    = 1
	openDirectory = 2
	openTruncate  = 8
	flagRead      = 1
	flagWrite     = 2
)

// fileErrors are those of WASI in their order.
var fileErrors = strings.Fields(`access would-block already bad-descriptor busy deadlock quota exist file-too-large
	illegal-byte-sequence in-progress interrupted invalid io is-directory loop too-many-links message-size name-too-long
	no-device no-entry no-lock insufficient-memory insufficient-space not-directory not-empty not-recoverable unsupported
	no-tty no-such-device overflow not-permitted pipe read-only invalid-seek text-file-busy cross-device`)

func fileError(path string, code uint8) error {
	name := "error"
	if int(code) < len(fileErrors) {
		name = fileErrors[code]
	}
	message := fmt.Sprintf("`%s`: %s", path, name)
	if name == "access" || name == "not-permitted" {
		return Denied("%s", message)
	}
	return Failed("%s", message)
}

// ReadFile reads a granted file.
func ReadFile(path string) ([]byte, error) {
	file, err := open(path, 0, flagRead)
	if err != nil {
		return nil, err
	}
	defer closeFile(file)
	var content bytes.Buffer
	for {
		var part returned
		readFrom(file, chunk, uint64(content.Len()), part.at(0))
		if part.u8(0) != 0 {
			return nil, fileError(path, part.u8(4))
		}
		size, _ := content.WriteString(part.text(4))
		if part.u8(12) != 0 || size == 0 {
			return content.Bytes(), nil
		}
	}
}

// WriteFile writes a granted file, in place of what it had.
func WriteFile(path string, content []byte) error {
	file, err := open(path, openCreate|openTruncate, flagWrite)
	if err != nil {
		return err
	}
	defer closeFile(file)
	for at := 0; at < len(content); {
		var written returned
		size := min(chunk, len(content)-at)
		writeTo(file, unsafe.Pointer(&content[at]), uint32(size), uint64(at), written.at(0))
		if written.u8(0) != 0 {
			return fileError(path, written.u8(8))
		}
		at += int(written.u64(8))
	}
	return nil
}

// ReadDir lists the names in a granted directory, sorted.
func ReadDir(path string) ([]string, error) {
	dir, err := open(path, openDirectory, flagRead)
	if err != nil {
		return nil, err
	}
	defer closeFile(dir)
	var opened returned
	readDirectory(dir, opened.at(0))
	if opened.u8(0) != 0 {
		return nil, fileError(path, opened.u8(4))
	}
	names := []string{}
	for {
		var next returned
		nextEntry(int32(opened.u32(4)), next.at(0))
		if next.u8(0) != 0 {
			return nil, fileError(path, next.u8(4))
		}
		if next.u8(4) == 0 {
			sort.Strings(names)
			return names, nil
		}
		names = append(names, next.text(12))
	}
}

func split(path string) []string {
	parts := []string{}
	for _, part := range strings.Split(path, "/") {
		if part != "" && part != "." {
			parts = append(parts, part)
		}
	}
	return parts
}

// open opens a file in the granted directory with the longest name that contains it.
func open(path string, openFlags, flags uint32) (int32, error) {
	var given returned
	getDirectories(given.at(0))
	wanted, best, length := split(path), int32(-1), -1
	for _, directory := range list[struct {
		descriptor int32
		name       abiString
	}](&given) {
		name := split(directory.name.lift())
		if len(name) <= length || len(name) > len(wanted) || strings.Join(name, "/") != strings.Join(wanted[:len(name)], "/") {
			continue
		}
		best, length = directory.descriptor, len(name)
	}
	if best < 0 {
		return 0, Denied("`%s` is in no granted directory", path)
	}
	rest := strings.Join(wanted[length:], "/")
	if rest == "" {
		rest = "."
	}
	data, size := passed(rest)
	var opened returned
	openAt(best, follow, data, size, openFlags, flags, opened.at(0))
	if opened.u8(0) != 0 {
		return 0, fileError(path, opened.u8(4))
	}
	return int32(opened.u32(4)), nil
}

// Environ returns the granted environment variables by their names.
func Environ() map[string]string {
	var given returned
	getEnvironment(given.at(0))
	variables := map[string]string{}
	for _, entry := range list[struct{ name, value abiString }](&given) {
		variables[entry.name.lift()] = entry.value.lift()
	}
	return variables
}

// Now returns the time, in UTC. time.Now does not tell it in a component.
func Now() time.Time {
	var given returned
	wallClock(given.at(0))
	return time.Unix(int64(given.u64(0)), int64(given.u32(8))).UTC()
}

// RandomBytes returns bytes that nobody can guess. Those of crypto/rand are the same in each call of a component.
func RandomBytes(size int) []byte {
	var given returned
	getRandomBytes(uint64(size), given.at(0))
	return []byte(given.text(0))
}
