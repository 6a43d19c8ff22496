package toolcell

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// schemaOf returns the JSON Schema of a struct.
func schemaOf[T any]() string {
	text, err := json.Marshal(schema(reflect.TypeFor[T]()))
	if err != nil {
		panic(err)
	}
	return string(text)
}

func schema(of reflect.Type) map[string]any {
	switch of.Kind() {
	case reflect.Pointer:
		return schema(of.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8:
		return map[string]any{"type": "integer"}
	case reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Float64, reflect.Float32:
		return map[string]any{"type": "number"}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": schema(of.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schema(of.Elem())}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Struct:
		return object(of)
	default:
		panic(fmt.Sprintf("toolcell: a parameter cannot have the type %v", of))
	}
}

func object(of reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for i := range of.NumField() {
		field := of.Field(i)
		name, rest, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = field.Name
		}
		property := schema(field.Type)
		if description := field.Tag.Get("description"); description != "" {
			property["description"] = description
		}
		if more := field.Tag.Get("schema"); more != "" {
			if err := json.Unmarshal([]byte("{"+more+"}"), &property); err != nil {
				panic(fmt.Sprintf("toolcell: the tag `schema` of %s.%s: %v", of, field.Name, err))
			}
		}
		properties[name] = property
		if field.Type.Kind() != reflect.Pointer && !strings.Contains(rest, "omitempty") {
			required = append(required, name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}
