package messages

import (
	"reflect"
	"sync"
)

// PodOf returns the UID of the pod whose story a message belongs to. It is the result of PodUID or, in messages of this
// package, the field UID, also of its Key, Pod or Facts. It is empty for a message about no single pod.
func PodOf(msg any) string {
	if s, ok := msg.(Subject); ok {
		return s.PodUID()
	}
	t := reflect.TypeOf(msg)
	index, known := subjects.Load(t)
	if !known {
		index, _ = subjects.LoadOrStore(t, subjectOf(t))
	}
	path := index.([]int)
	if path == nil {
		return ""
	}
	uid, err := reflect.ValueOf(msg).FieldByIndexErr(path)
	if err != nil {
		return "" // its pod is nil
	}
	return uid.String()
}

// subjects has the index of the field with the UID by the type of a message; nil where there is none.
var subjects sync.Map

func subjectOf(t reflect.Type) []int {
	if t == nil || t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[ReadPod]().PkgPath() {
		return nil
	}
	for _, name := range []string{"", "Key", "Pod", "Facts"} {
		holder := reflect.StructField{Type: t}
		if name != "" {
			var found bool
			if holder, found = t.FieldByName(name); !found {
				continue
			}
		}
		if holder.Type.Kind() == reflect.Pointer {
			holder.Type = holder.Type.Elem()
		}
		if holder.Type.Kind() != reflect.Struct {
			continue
		}
		if uid, found := holder.Type.FieldByName("UID"); found && uid.Type.Kind() == reflect.String {
			return append(holder.Index, uid.Index...)
		}
	}
	return nil
}
