// Renders a chart's template with its values as Helm does, by Go's own templates.
package main

import (
	"encoding/json"
	"os"
	"sort"
	"strings"
	"text/template"
)

type versions []string

func (known versions) Has(one string) bool {
	for _, each := range known {
		if each == one {
			return true
		}
	}
	return false
}

func main() {
	var data struct {
		Template string
		Values   map[string]interface{}
		Release  map[string]string
		Versions versions
	}
	if err := json.NewDecoder(os.Stdin).Decode(&data); err != nil {
		panic(err)
	}
	functions := template.FuncMap{
		"toYaml": func(value map[string]interface{}) string {
			lines := []string{}
			for key, one := range value {
				text, _ := json.Marshal(one)
				lines = append(lines, key+": "+string(text))
			}
			sort.Strings(lines)
			return strings.Join(lines, "\n")
		},
		"nindent": func(width int, text string) string {
			space := "\n" + strings.Repeat(" ", width)
			return space + strings.ReplaceAll(text, "\n", space)
		},
	}
	made := template.Must(template.New("chart").Funcs(functions).Option("missingkey=error").Parse(data.Template))
	given := map[string]interface{}{
		"Values":       data.Values,
		"Release":      data.Release,
		"Capabilities": map[string]interface{}{"APIVersions": data.Versions},
	}
	if err := made.Execute(os.Stdout, given); err != nil {
		panic(err)
	}
}
