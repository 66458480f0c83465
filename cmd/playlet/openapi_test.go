package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// TestDocs_OpenAPI checks that docs/openapi.json describes the routes of the admin API, and writes it with -update.
func TestDocs_OpenAPI(t *testing.T) {
	got, err := json.MarshalIndent(openAPI(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join(docsDir, "openapi.json")
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("docs/openapi.json is out of date: go test -run TestDocs ./cmd/playlet -update")
	}
}

const modulePath = "github.com/playlet-dev/playlet/"

// openAPI generates the description from the table of routes and their types.
func openAPI(t *testing.T) *spec3.OpenAPI {
	g := &schemas{t: t, found: map[string]*spec.Schema{}, docs: map[string]map[string]string{}}
	paths := map[string]*spec3.Path{}
	for _, r := range admin.Routes() {
		path := strings.ReplaceAll(r.Path, "...}", "}")
		if paths[path] == nil {
			paths[path] = &spec3.Path{}
		}
		at, op := &paths[path].PathProps, g.operation(r, path)
		switch r.Method {
		case "GET":
			at.Get = op
		case "POST":
			at.Post = op
		case "PUT":
			at.Put = op
		case "DELETE":
			at.Delete = op
		default:
			t.Fatalf("%s %s: method without a field", r.Method, r.Path)
		}
	}
	return &spec3.OpenAPI{
		Version: "3.0.0",
		Info: &spec.Info{InfoProps: spec.InfoProps{
			Title: "Playlet's admin API", Version: "v1", License: &spec.License{Name: "Apache-2.0"},
			Description: "HTTP on the Unix socket /run/playlet/admin.sock, for root and the group of --admin-socket-group. Types " +
				"of k8s.io are described by Kubernetes.",
		}},
		Paths:      &spec3.Paths{Paths: paths},
		Components: &spec3.Components{Schemas: g.found},
	}
}

var pathParameter = regexp.MustCompile(`{(\w+)}`)

func (g *schemas) operation(r admin.Route, path string) *spec3.Operation {
	op := &spec3.Operation{OperationProps: spec3.OperationProps{
		Summary:   r.Summary,
		Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{}}},
	}}
	for _, m := range pathParameter.FindAllStringSubmatch(path, -1) {
		op.Parameters = append(op.Parameters, parameter(m[1], "path", true, spec.StringProperty()))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Query)) {
		op.Parameters = append(op.Parameters, parameter(name, "query", false, g.of(reflect.TypeOf(r.Query[name]))))
	}
	if r.Body != nil {
		op.RequestBody = &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Required: true,
			Content: g.content("application/yaml", r.Body)}}
	}
	status, answer := 200, &spec3.Response{ResponseProps: spec3.ResponseProps{Description: "OK"}}
	if r.Upgrade {
		status, answer.Description = 101, "the connection carries one of Kubernetes' streaming protocols"
	} else {
		answer.Content = g.content("text/plain", r.Answer)
	}
	if r.Line != nil {
		answer.Description = "OK; with watch or follow, a stream with one object of JSON on each line"
		lines := g.content("", r.Line)["application/json"]
		answer.Content["application/jsonl"] = lines
	}
	op.Responses.StatusCodeResponses[status] = answer
	op.Responses.Default = &spec3.Response{ResponseProps: spec3.ResponseProps{
		Description: "the request failed", Content: g.content("", api.Error{})}}
	return op
}

func parameter(name, in string, required bool, s *spec.Schema) *spec3.Parameter {
	return &spec3.Parameter{ParameterProps: spec3.ParameterProps{Name: name, In: in, Required: required, Schema: s}}
}

// content describes a body: JSON, or for a string text of the media type.
func (g *schemas) content(text string, v any) map[string]*spec3.MediaType {
	media := "application/json"
	if _, ok := v.(string); ok {
		media = text
	}
	return map[string]*spec3.MediaType{media: {MediaTypeProps: spec3.MediaTypeProps{Schema: g.of(reflect.TypeOf(v))}}}
}

// schemas generates the schemas of Go types as encoding/json writes them.
type schemas struct {
	t     *testing.T
	found map[string]*spec.Schema      // of structs, by package and name
	docs  map[string]map[string]string // by package path, then by Type or Type.Field
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	metaTimeType = reflect.TypeFor[metav1.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextMarshaler]()
)

func (g *schemas) of(t reflect.Type) *spec.Schema {
	switch {
	case t.Kind() == reflect.Pointer:
		return g.of(t.Elem())
	case t == timeType || t == metaTimeType:
		return spec.DateTimeProperty()
	case t == durationType:
		return spec.Int64Property().WithDescription("nanoseconds")
	case strings.HasPrefix(t.PkgPath(), "k8s.io/") && t.Kind() != reflect.String:
		return (&spec.Schema{}).Typed("object", "").WithDescription(t.PkgPath() + "." + t.Name())
	case t.Implements(textType) || reflect.PointerTo(t).Implements(textType):
		return spec.StringProperty()
	}
	switch t.Kind() {
	case reflect.Bool:
		return spec.BooleanProperty()
	case reflect.String:
		return spec.StringProperty()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return spec.Int64Property()
	case reflect.Float32, reflect.Float64:
		return spec.Float64Property()
	case reflect.Interface:
		return &spec.Schema{}
	case reflect.Slice, reflect.Array:
		return spec.ArrayProperty(g.of(t.Elem()))
	case reflect.Map:
		return spec.MapProperty(g.of(t.Elem()))
	case reflect.Struct:
		return g.reference(t)
	default:
		g.t.Fatalf("type %s has no schema", t)
		return nil
	}
}

// reference describes a struct once, and returns the reference to it.
func (g *schemas) reference(t reflect.Type) *spec.Schema {
	name := filepath.Base(t.PkgPath()) + "." + t.Name()
	if g.found[name] == nil {
		s := (&spec.Schema{}).Typed("object", "")
		g.found[name] = s // first, as a type may contain itself
		s.WithDescription(g.doc(t, t.Name()))
		g.fields(s, t)
	}
	return spec.RefSchema("#/components/schemas/" + name)
}

// fields adds the fields of a struct, and those of embedded ones. Embedded types of Kubernetes become a part of allOf.
func (g *schemas) fields(s *spec.Schema, t reflect.Type) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		embedded := f.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "" && strings.HasPrefix(embedded.PkgPath(), "k8s.io/"):
			s.AddToAllOf(*g.of(embedded))
		case f.Anonymous && name == "":
			g.fields(s, embedded)
		default:
			if name == "" {
				name = f.Name
			}
			field := g.of(f.Type)
			if text := g.doc(t, t.Name()+"."+f.Name); text != "" && field.Ref.String() == "" && field.Description == "" {
				field.WithDescription(text)
			}
			s.SetProperty(name, *field)
			if !strings.Contains(options, "omit") {
				s.AddRequired(name)
			}
		}
	}
}

// doc returns the comment of Type or Type.Field in the source of the package of t.
func (g *schemas) doc(t reflect.Type, name string) string {
	dir, ours := strings.CutPrefix(t.PkgPath(), modulePath)
	if !ours {
		return ""
	}
	if g.docs[dir] == nil {
		g.docs[dir] = g.comments(filepath.Join("..", "..", dir))
	}
	return g.docs[dir][name]
}

func (g *schemas) comments(dir string) map[string]string {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		g.t.Fatal(err)
	}
	fset, files := token.NewFileSet(), []*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			g.t.Fatal(err)
		}
		files = append(files, file)
	}
	pkg, err := doc.NewFromFiles(fset, files, modulePath+dir, doc.AllDecls)
	if err != nil {
		g.t.Fatal(err)
	}
	out := map[string]string{}
	for _, typ := range pkg.Types {
		out[typ.Name] = oneLine(typ.Doc)
		ast.Inspect(typ.Decl, func(n ast.Node) bool {
			f, ok := n.(*ast.Field)
			if !ok {
				return true
			}
			for _, name := range f.Names {
				out[typ.Name+"."+name.Name] = oneLine(f.Doc.Text() + " " + f.Comment.Text())
			}
			return true
		})
	}
	return out
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// TestOpenAPI_ReferencesResolve checks that each referenced schema exists, and that each path is described.
func TestOpenAPI_ReferencesResolve(t *testing.T) {
	text, err := json.Marshal(openAPI(t))
	if err != nil {
		t.Fatal(err)
	}
	var parsed spec3.OpenAPI
	if err := json.Unmarshal(text, &parsed); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"#/components/schemas/([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		if parsed.Components.Schemas[m[1]] == nil {
			t.Errorf("schema %s is referenced, and absent", m[1])
		}
	}
	for _, r := range admin.Routes() {
		if r.Summary == "" || !r.Upgrade && r.Answer == nil {
			t.Errorf("%s %s lacks a summary or an answer", r.Method, r.Path)
		}
	}
	if len(parsed.Components.Schemas) == 0 {
		t.Error(fmt.Errorf("no schema in %d bytes", len(text)))
	}
}
