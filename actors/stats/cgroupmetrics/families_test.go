package cgroupmetrics

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cadvisor/lib/metrics"
	"github.com/google/cadvisor/lib/model"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/actors/stats/cgroupstats"
	"github.com/playlet-dev/playlet/cri"
)

// infoProvider provides containers to the library's collector.
type infoProvider struct {
	all map[string]*model.ContainerInfo
}

func (p infoProvider) GetRequestedContainersInfo(string, model.RequestOptions) (map[string]*model.ContainerInfo, error) {
	return p.all, nil
}

func (infoProvider) GetMachineInfo() (*model.MachineInfo, error) { return &model.MachineInfo{}, nil }
func (infoProvider) GetVersionInfo() (*model.VersionInfo, error) { return &model.VersionInfo{}, nil }

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fill sets each number below v to a different value.
func fill(v reflect.Value, next *uint64) {
	*next++
	switch v.Kind() {
	case reflect.Uint64:
		v.SetUint(*next * 1001)
	case reflect.Int64:
		v.SetInt(int64(*next))
	case reflect.Float64:
		v.SetFloat(float64(*next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(begin.Add(time.Duration(*next) * time.Second)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Slice:
		switch v.Type().Elem() {
		case reflect.TypeFor[model.PerDiskStats]():
			list := []model.PerDiskStats{}
			for i, device := range []string{"/dev/sda", "/dev/sdb", "", ""} { // two are only known by their numbers
				*next++
				list = append(list, model.PerDiskStats{Device: device, Major: 8, Minor: uint64(i),
					Stats: map[string]uint64{"Read": *next * 3, "Write": *next * 5, "Total": *next * 7, "Count": *next}})
			}
			v.Set(reflect.ValueOf(list))
		case reflect.TypeFor[model.InterfaceStats](), reflect.TypeFor[model.UlimitSpec](), reflect.TypeFor[model.FsStats]():
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			for i := range 2 {
				fill(v.Index(i), next)
				if f := v.Index(i).FieldByName("Device"); f.IsValid() {
					f.SetString([]string{"/dev/sda", "tmpfs"}[i]) // the first also appears in the cgroup's own figures
				} else {
					v.Index(i).FieldByName("Name").SetString(fmt.Sprint("name", i))
				}
			}
		}
	}
}

// Each family of containers equals the one of cAdvisor's collector: name, type, labels, values and times.
func TestContainerFamiliesAreCAdvisors(t *testing.T) {
	var next uint64
	all := map[string]*model.ContainerInfo{}
	add := func(name string, change func(*model.ContainerInfo)) {
		info := &model.ContainerInfo{ContainerReference: model.ContainerReference{Name: name}}
		fill(reflect.ValueOf(&info.Spec).Elem(), &next)
		s := &model.ContainerStats{}
		fill(reflect.ValueOf(s).Elem(), &next)
		s.Cpu.Usage.PerCpu, s.Health = nil, model.Health{}
		info.Stats = []*model.ContainerStats{s}
		change(info)
		all[name] = info
	}
	add("/", func(*model.ContainerInfo) {})
	add("/pod", func(i *model.ContainerInfo) { i.Spec.Cpu.Quota, i.Stats[0].Cpu.Usage.Total = 0, 0 })
	add("/pod/1", func(i *model.ContainerInfo) {
		i.Aliases, i.Spec.Image, i.Spec.StartTime = []string{"1"}, "image", begin
		i.Spec.Labels = map[string]string{cri.LabelPodNamespace: "ns", cri.LabelPodName: "pod", cri.LabelContainerName: "c"}
		i.Spec.Memory = model.MemorySpec{Limit: cgroupstats.Unlimited, SwapLimit: 1 << 62, Reservation: 1<<63 - 1}
		i.Stats[0].Filesystem = nil
	})
	add("/2", func(i *model.ContainerInfo) { // like figures of the CRI
		i.Spec.HasCpu, i.Spec.HasMemory, i.Spec.StartTime = false, false, time.Time{}
		s := i.Stats[0]
		i.Stats[0] = &model.ContainerStats{Timestamp: s.Timestamp, Cpu: s.Cpu, Memory: s.Memory}
	})
	library := prometheus.NewRegistry()
	library.MustRegister(metrics.NewPrometheusCollector(infoProvider{all}, func(i *model.ContainerInfo) map[string]string {
		out, values := map[string]string{}, labels(i)
		for i, name := range labelNames {
			out[name] = values[i]
		}
		return out
	}, cgroupstats.MetricsFor(true), clocktesting.NewFakeClock(begin), model.RequestOptions{}))
	others := prometheus.NewRegistry()
	want, _ := library.Gather() // it rejects duplicates, and returns the rest
	got, err := (&Gatherer{others, all, begin, true}).Gather()
	if err != nil {
		t.Fatal(err)
	}
	lines := func(all []*dto.MetricFamily) map[string]bool {
		out := map[string]bool{}
		for _, f := range all {
			if f.GetName() == "cadvisor_version_info" || f.GetName() == "container_scrape_error" {
				continue
			}
			if f.GetHelp() == "" {
				t.Errorf("%s has no help", f.GetName())
			}
			for _, m := range f.GetMetric() {
				var of []string
				for _, l := range m.GetLabel() {
					of = append(of, l.GetName()+"="+l.GetValue())
				}
				if !slices.IsSorted(of) {
					t.Errorf("%s: %v", f.GetName(), of)
				}
				line := fmt.Sprint(f.GetName(), f.GetType(), of, m.GetCounter().GetValue()+m.GetGauge().GetValue(), m.TimestampMs != nil,
					m.GetTimestampMs())
				if out[line] {
					t.Errorf("twice: %s", line)
				}
				out[line] = true
			}
		}
		return out
	}
	have, should := lines(got), lines(want)
	for line := range should {
		if !have[line] {
			t.Errorf("there is no %s", line)
		}
	}
	for line := range have {
		if !should[line] {
			t.Errorf("cAdvisor has no %s", line)
		}
	}
	if len(should) < 300 || !strings.Contains(fmt.Sprint(should), "pressure") {
		t.Errorf("only %d metrics were compared", len(should))
	}
}

// A pod chooses the names of its interfaces: none corrupts the answer.
func TestNamesOfInterfaces(t *testing.T) {
	s := &model.ContainerStats{Cpu: &model.CpuStats{}, Memory: &model.MemoryStats{}, Network: &model.NetworkStats{
		Interfaces: []model.InterfaceStats{{Name: "e\uFFFD", RxBytes: 1}, {Name: "e\uFFFD", RxBytes: 3}, {Name: "raw\xff"}},
	}}
	info := &model.ContainerInfo{Stats: []*model.ContainerStats{s}}
	info.Spec.HasNetwork = true
	got, err := (&Gatherer{prometheus.NewRegistry(), map[string]*model.ContainerInfo{"/": info}, begin, true}).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range got {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "container_network_receive_bytes_total" && l.GetName() == "interface" {
					names = append(names, l.GetValue())
				}
			}
		}
	}
	if !slices.Equal(names, []string{"e\uFFFD", "raw\uFFFD"}) {
		t.Errorf("%q", names)
	}
}
