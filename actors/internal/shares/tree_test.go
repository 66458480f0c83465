package shares

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// limits has the limits of the tree by the reason that they are fair, each as package.name. Limits of a size that one piece of
// data or one answer may have are not shared: other work does not get smaller by it.
var limits = map[string]string{
	"places are shared by client, namespace and pod (package shares)": `
		actors/images.maxFetches actors/internal/linux/safepath.maxCalls actors/internal/reconcile:lane actors/objects.getsAtATime actors/objects.getsWaiting
		actors/server/admin.maxSubmissions actors/server/admin.maxWaiting actors/server/admin.maxWatches
		actors/server/cadvisor.maxStreams actors/server/containers.maxLogs actors/server/containers.maxStreams
		actors/server/nodeapi.maxSends actors/server/nodeapi.maxShort actors/server/nodeapi.maxSlow actors/server/nodeapi.maxWaiting
		actors/volumes/csi.callsAtATime actors/volumes/csi.callsWaiting`,
	"the largest namespace and pod lose what is too much (shares.Excess)": `
		actors/events.maxWaiting actors/events:queue actors/internal/eventlog.Room`,
	"slots are shared by namespace and registry (package lanes)": `
		actors/images/lanes.AtOnce actors/images/lanes.EachOf actors/images/lanes:lane`,
	"long walks: the namespace with the fewest goes first (stats/turns.go)": `
		actors/stats:turnQueue`,
	"pulls a second: namespaces and registries take turns": `
		actors/images/lanes:NewLimiter`,
	"shared by pod: half of a pool for all, and an eighth of it for each pod (prober/schedule.go)": `
		actors/prober:lane actors/prober:pool`,
	"calls to the runtime: the oldest pod first, apart by kind of call, and each call has a deadline": `
		actors/runtime/readqueue:Queue`,
	"calls to the runtime: the oldest pod first, apart by kind of call, and one turn in eight is of the longest wait": `
		cri:Limits cri:slotQueue`,
	"one write for each pod: the most urgent first, and one turn in ten is of the longest wait": `
		actors/status.writers`,
	"each client has its own": `
		actors/server.maxClients actors/server:NewLimiter`,
	"all clients are root, and the limit is the kubelet's": `
		actors/server/podresources:NewLimiter`,
	"one server or disk does it for all, one by one, and each piece ends by its deadline": `
		actors/prober.maxSaves actors/runtime.maxRemovals actors/internal/linux/cgroups.heldAtOnce
		actors/stats/cgroupmetrics.slotsAtOnce`,
	"each pod, driver or object has its own": `
		actors/ender:chan actors/internal/dirwatch.maxMoved actors/internal/dra.maxReports actors/internal/plugin.receivedAtOnce actors/internal/plugin:NewLimiter
		actors/volumes/csi.maxTopology actors/eviction.maxUnmeasured actors/internal/explain.maxEvent actors/internal/explain.maxWords
		actors/internal/metrics.maxPulls actors/shutdown:chan actors/stats.maxCarried actors/stats.walkFew actors/stats.walkLinks
		actors/stats.walkPending actors/stats.walkPlaces actors/volumes.maxHeldError actors/volumes.volumesAtATime actors/volumes:chan
		actors/internal/linux/program.maxOutput actors/volumes/iscsi.maxLUN actors/volumes/iscsi.maxPortals`,
	"plugins of the node, which are root's; each ends by its deadline": `
		actors/internal/devices.maxResources actors/internal/pluginwatch.maxAsked`,
	"a cache: an entry that is gone is read or made once more": `
		actors/images/provider.maxCached actors/internal/host.hookPlaces actors/volumes/satoken.maxAccounts
		cmd/playlet/agent/podlog.mostNames cmd/playlet/agent/spans.maxTraced`,
	"a record for people of what was seen last, which no work waits for": `
		actors/internal/history.maxSeries actors/prober.lateRunsKept actors/registration.maxNames actors/server/cadvisor.maxLacks actors/server/cadvisor.maxSeen
		actors/stats/agentmetrics.maxProbed supervisors.maxDumped supervisors.maxTopics`,
	"work above it is done without, by looking once a second": `
		cri/crilog.maxWatches cri/crilog:chan`,
	"thresholds of the node, which count no work": `
		actors/eviction:Limits actors/images:Limits`,
	"bounds one piece of data, one answer or one walk": `
		actors/resources.maxTries actors/container.maxHosts actors/events.maxMessage actors/eviction/oomkill.maxRecord actors/images/provider.maxAnswer
		actors/images/provider.maxConfig actors/identity.maxRoots actors/internal/statefile.maxFile actors/images/pullauth.maxFile actors/images/pullrecord.maxRecord
		actors/internal/endpoint.maxBody actors/internal/endpoint.maxHeader actors/internal/endpoint.maxRedirects
		actors/internal/linux/atomicfile.maxCheckpoint actors/internal/linux/safepath.maxDepth
		actors/internal/manifest.maxObjectBytes actors/internal/manifest.maxProblems actors/internal/manifest.maxFileProblems actors/internal/manifest.maxDocuments actors/internal/podspec.maxAppArmorName
		actors/internal/podspec.maxExitCodesPerRule actors/internal/podspec.maxHostname actors/internal/podspec.maxNameservers
		actors/internal/podspec.maxPort actors/internal/podspec.maxRestartRules actors/internal/podspec.maxSearches
		actors/internal/podspec.maxSearchesBytes actors/internal/podspec.maxSysctlName actors/logs.maxLinkName
		actors/prober.maxGRPC actors/prober.maxMessage actors/server.maxHeaderBytes actors/server.maxNodeHeaderBytes
		actors/server/admin.maxBodyBytes actors/server/admin.maxManifestBytes actors/server/admin/api.maxAnswer
		actors/server/admin/api.maxError actors/server/cadvisor.maxBody actors/server/cadvisor.maxSamples
		actors/server/cadvisor.noLimit actors/server/containers.maxRefusal actors/server/nodeapi.maxBody
		actors/server/nodeapi.maxLinks actors/server/nodeapi.mostServices actors/server/nodeapi.mostTailLines
		actors/shutdown.maxState actors/sources/submit.maxObject actors/sources/url.maxBody actors/sources/url.maxRedirects
		actors/internal/apiclient.maxAnswer actors/internal/apiclient.maxText actors/volumes/satoken.maxSeconds actors/volumes/persistent.mostPeriod
		actors/internal/plugin.maxHeaders actors/internal/plugin.maxText actors/internal/pluginwatch.maxName
		actors/stats/cgroupstats.mostInterfaces actors/volumes/csi.maxNodeID
		actors/volumes/csi.maxRecord actors/volumes/iscsi.maxRecord actors/volumes/kinds.spareRoom
		cni.maxConfig cni.maxLease cni.maxRecord cni.most config.most config/configfile.maxFileSize config/configfile.maxMisfits
		cri.maxMessageSize cri.maxSocketPath cri/crilog.maxLine cri/crilog.maxOpen cri/crilog.maxTries
		cri/facts.maxLogBytes cri/facts.maxLogLines cri/facts.maxMessageBytes cri/remains.maxCommandLine
		cri/translate.maxEntries cri/translate.maxEntry cri/translate.maxFQDN cri/translate.maxHostname
		cri/translate.maxNameservers cri/translate.maxResolvConf cri/translate.maxSearchDomain cri/translate.maxSearchDomains
		cri/translate.maxSearchLength cri/translate.maxShares cri/translate.maxString cri/translate.maxStrings`,
}

var (
	limitNames = regexp.MustCompile(`^(max|most|no)([A-Z]\w*)?$|(AtATime|AtOnce|Places|Slots|Waiting|Limits?|Room|EachOf|Kept|Few|` +
		`Links|Pending|writers|workersOf)$`)
	limitTypes = regexp.MustCompile(`(?i)(queue|limits|semaphore|pool|lane)$`)
	limitCalls = regexp.MustCompile(`^(NewLimiter|SetLimit|NewWeighted|LimitListener)$`)
)

// oneUser are the folders of commands and of the simulator: each process has one user, who shares with no other.
var oneUser = []string{"cmd/playlet/client", "cmd/playlet/dev", "cmd/playlet/doctor", "cri/sim"}

// limitsOf returns the limits in a file: numbers with the name of a limit, queues, rates, and channels with several places.
func limitsOf(file *ast.File) (out []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) && limitNames.MatchString(name.Name) && isNumber(n.Values[i]) {
					out = append(out, "."+name.Name)
				}
			}
		case *ast.TypeSpec:
			if limitTypes.MatchString(n.Name.Name) {
				out = append(out, ":"+n.Name.Name)
			}
		case *ast.CallExpr:
			switch f := n.Fun.(type) {
			case *ast.SelectorExpr:
				if limitCalls.MatchString(f.Sel.Name) {
					out = append(out, ":"+f.Sel.Name)
				}
			case *ast.Ident:
				if f.Name != "make" || len(n.Args) != 2 {
					break
				}
				one, _ := n.Args[1].(*ast.BasicLit)
				if _, channel := n.Args[0].(*ast.ChanType); channel && (one == nil || one.Value != "1") {
					out = append(out, ":chan")
				}
			}
		}
		return true
	})
	return out
}

// isNumber reports that an expression is no time and no text.
func isNumber(e ast.Expr) bool {
	number := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			number = number && n.Kind != token.STRING
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && (x.Name == "time" || x.Name == "prometheus" || x.Name == "shares") {
				number = false
			}
		case *ast.CompositeLit, *ast.FuncLit:
			number = false
		}
		return number
	})
	return number
}

// Each limit of the tree is in the table, with the way in which it is shared or the reason that it need not be.
func TestTree_LimitsAreShares(t *testing.T) {
	const root = "../../.."
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"e2e", "testdata", "bin", "dist"}, d.Name()) ||
			path != root && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if slices.ContainsFunc(oneUser, func(of string) bool { return folder == of || strings.HasPrefix(folder, of+"/") }) {
			return err
		}
		for _, name := range limitsOf(file) {
			found[folder+name] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, names := range limits {
		for _, name := range strings.Fields(names) {
			listed[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !listed[name] {
			t.Errorf("%s is a limit without a reason in the table: is it shared by client, namespace or pod?", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !found[name] {
			t.Errorf("%s is in the table of limits and not in the tree", name)
		}
	}
}

func TestLimitsOf(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
const maxThings, maxAge, maxName = 3, 4 * time.Second, "x"
var readsAtATime = 2 + 2
type slotQueue struct{}
func f() {
	_ = make(chan struct{}, 1)
	_ = make(chan int, readsAtATime)
	_ = rate.NewLimiter(1, 1)
	g.SetLimit(3)
	_ = make([]int, 3)
}`, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(limitsOf(file), " "); got != ".maxThings .readsAtATime :slotQueue :chan :NewLimiter :SetLimit" {
		t.Errorf("got %s", got)
	}
}
