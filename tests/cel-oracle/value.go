package main

import (
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	apiservercel "k8s.io/apiserver/pkg/cel"
)

// formatValue returns the text of a value in the golden file, usually type:literal. The entries of
// a map are sorted by their text.
func formatValue(value ref.Val) (string, error) {
	switch v := value.(type) {
	case types.Null:
		return "null", nil
	case types.Bool:
		return fmt.Sprintf("bool:%v", bool(v)), nil
	case types.Int:
		return fmt.Sprintf("int:%d", int64(v)), nil
	case types.Uint:
		return fmt.Sprintf("uint:%d", uint64(v)), nil
	case types.Double:
		if math.IsNaN(float64(v)) {
			return "double:NaN", nil
		}
		return fmt.Sprintf("double:%016x", math.Float64bits(float64(v))), nil
	case types.String:
		return "string:" + quote(string(v)), nil
	case types.Bytes:
		return fmt.Sprintf("bytes:%x", []byte(v)), nil
	case types.Duration:
		return fmt.Sprintf("duration:%d", int64(v.Duration)), nil
	case types.Timestamp:
		return formatTime(v.Time), nil
	case *types.Type:
		return "type:" + v.TypeName(), nil
	case *types.Optional:
		if !v.HasValue() {
			return "optional.none", nil
		}
		inner, err := formatValue(v.GetValue())
		return "optional.of(" + inner + ")", err
	case apiservercel.Quantity:
		return "quantity:" + v.Quantity.String(), nil
	case *apiservercel.Quantity:
		// The functions add and sub of a quantity return a pointer. If such a pointer is the right
		// operand of ==, Kubernetes' answer is the error "no such overload".
		return "quantity:" + v.Quantity.String(), nil
	case apiservercel.URL:
		return "url:" + quote(v.URL.String()), nil
	case apiservercel.IP:
		return "ip:" + v.Addr.String(), nil
	case apiservercel.CIDR:
		return "cidr:" + v.Prefix.String(), nil
	case apiservercel.Semver:
		return "semver:" + v.Version.String(), nil
	case apiservercel.Format:
		return "format:" + v.Name, nil
	case traits.FieldTester:
		// A FieldTester is a message of protocol buffers, for example google.protobuf.Empty{}, or a map.
		if mapper, is := v.(traits.Mapper); is {
			return formatMap(mapper)
		}
		return "message:" + value.Type().TypeName(), nil
	case *types.Err:
		return "", v
	case traits.Lister:
		return formatList(v)
	case traits.Mapper:
		return formatMap(v)
	default:
		return "", fmt.Errorf("cel-oracle has no format for %T", value)
	}
}

func formatList(list traits.Lister) (string, error) {
	size := int(list.Size().(types.Int))
	items := make([]string, size)
	for i := range items {
		var err error
		if items[i], err = formatValue(list.Get(types.Int(i))); err != nil {
			return "", err
		}
	}
	return "[" + strings.Join(items, ",") + "]", nil
}

func formatMap(m traits.Mapper) (string, error) {
	if _, folds := m.(traits.Foldable); !folds {
		return m.Type().TypeName(), nil
	}
	var entries []string
	for i := m.Iterator(); i.HasNext() == types.True; {
		key := i.Next()
		member, found := m.Find(key)
		if !found {
			return "", fmt.Errorf("cel-oracle cannot find the key %v", key)
		}
		keyText, err := formatValue(key)
		if err != nil {
			return "", err
		}
		memberText, err := formatValue(member)
		if err != nil {
			return "", err
		}
		entries = append(entries, keyText+"="+memberText)
	}
	sort.Strings(entries)
	return "{" + strings.Join(entries, ",") + "}", nil
}

func formatTime(t time.Time) string {
	return fmt.Sprintf("timestamp:%d.%09d", t.Unix(), t.Nanosecond())
}

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(quoted)
}
