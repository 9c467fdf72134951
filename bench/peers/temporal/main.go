// Command bench measures Temporal as our other peers are measured: a server, its worker and its client, all in this
// process, on PostgreSQL.
//
// It reads commands from its standard input, one JSON object each, and answers each with one line: [figures, failure],
// one of which is null. It ends when its input ends, and so also when the process that asks is killed.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/common/testing/freeport"
	"go.temporal.io/server/temporal"
	"go.temporal.io/server/tools/common/schema"
	"go.temporal.io/server/tools/sql"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	name     = "bench" // of the namespace and the task queue
	address  = "127.0.0.1"
	warming  = 20 // steps, as in bench/peers/dbos.py
	patience = 30 * time.Second
)

type figures map[string]float64

type request struct {
	Command  string `json:"command"`
	Database string `json:"database"`
	Count    int    `json:"count"`
}

func main() {
	requests := make(chan request)
	go read(requests)
	answers := json.NewEncoder(os.Stdout)
	for request := range requests {
		var answer [2]any
		found, err := do(context.Background(), request)
		if err != nil {
			answer[1] = strings.Join(strings.Fields(err.Error()), " ")
		} else {
			answer[0] = found
		}
		if err := answers.Encode(answer); err != nil {
			os.Exit(1)
		}
	}
}

// read hands on what is asked, and ends the program, whatever it does, when nobody can ask any more.
func read(requests chan<- request) {
	decoder := json.NewDecoder(os.Stdin)
	for {
		var asked request
		if err := decoder.Decode(&asked); errors.Is(err, io.EOF) {
			os.Exit(0)
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "not a command:", err)
			os.Exit(2)
		}
		requests <- asked
	}
}

func do(ctx context.Context, asked request) (figures, error) {
	var kind any
	switch asked.Command {
	case "activities":
		kind = activities
	case "local-activities":
		kind = localActivities
	default:
		return nil, fmt.Errorf("unknown command %q", asked.Command)
	}
	frontend, err := serve(asked.Database)
	if err != nil {
		return nil, err
	}
	caller, err := connect(ctx, frontend)
	if err != nil {
		return nil, err
	}
	return steps(ctx, caller, kind, asked.Count)
}

// serve makes the tables of a server in an empty database and starts it; it returns its address. The service that runs
// the server's own workflows is left out: nothing here needs it. What lists workflows, its visibility, is in memory: on
// PostgreSQL it takes an extension (btree_gin) that our server does not have, and no step waits for it.
func serve(place string) (string, error) {
	store, err := database(place)
	if err != nil {
		return "", err
	}
	if err := makeTables(store, "postgresql/v12/temporal"); err != nil {
		return "", err
	}
	stores := map[string]config.DataStore{"temporal": {SQL: store}, "visibility": {SQL: &config.SQL{
		PluginName:        sqlite.PluginName,
		DatabaseName:      "visibility",
		ConnectAttributes: map[string]string{"mode": "memory", "cache": "shared"},
	}}}
	var services []string
	rpc := map[string]config.Service{}
	hosts := map[primitives.ServiceName]static.Hosts{primitives.WorkerService: static.SingleLocalHost(address)}
	for _, service := range []primitives.ServiceName{
		primitives.FrontendService, primitives.HistoryService, primitives.MatchingService,
	} {
		port := freeport.MustGetFreePort()
		services = append(services, string(service))
		rpc[string(service)] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnLocalHost: true}}
		hosts[service] = static.SingleLocalHost(fmt.Sprintf("%s:%d", address, port))
	}
	frontend := fmt.Sprintf("%s:%d", address, rpc[string(primitives.FrontendService)].RPC.GRPCPort)
	settings := &config.Config{
		Persistence: config.Persistence{
			DefaultStore: "temporal", VisibilityStore: "visibility", NumHistoryShards: 4, DataStores: stores,
		},
		Services: rpc,
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        "active",
			CurrentClusterName:       "active",
			ClusterInformation: map[string]cluster.ClusterInformation{
				"active": {Enabled: true, InitialFailoverVersion: 1, RPCAddress: frontend},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		PublicClient:        config.PublicClient{HostPort: frontend},
	}
	server, err := temporal.NewServer(
		temporal.WithConfig(settings),
		temporal.ForServices(services),
		temporal.WithStaticHosts(hosts), // they need not find each other
		temporal.WithLogger(log.NewNoopLogger()),
		temporal.WithDynamicConfigClient(dynamicconfig.StaticClient{
			// An activity begins as soon as it is recorded, without a way through the task queue; off by default.
			dynamicconfig.EnableActivityEagerExecution.Key(): true,
			// Each step takes one read of the queue of its shard. By default 20 a second are allowed.
			dynamicconfig.TransferProcessorMaxPollRPS.Key(): 10_000,
		}),
	)
	if err != nil {
		return "", err
	}
	return frontend, server.Start()
}

// database describes the one at a URL, which may name the folder of a unix socket as its option host.
func database(place string) (*config.SQL, error) {
	parsed, err := url.Parse(place)
	if err != nil {
		return nil, err
	}
	password, _ := parsed.User.Password()
	attributes := map[string]string{}
	for key, values := range parsed.Query() {
		attributes[key] = values[0]
	}
	return &config.SQL{
		PluginName:        postgresql.PluginNamePGX,
		DatabaseName:      strings.TrimPrefix(parsed.Path, "/"),
		ConnectAddr:       cmp.Or(parsed.Host, "localhost:5432"), // it must be given; the option host comes before it
		ConnectProtocol:   "tcp",
		ConnectAttributes: attributes,
		User:              parsed.User.Username(),
		Password:          password,
		MaxConns:          20, // as in the configurations that come with the server
		MaxIdleConns:      20,
	}, nil
}

// makeTables does what temporal-sql-tool does with setup-schema and update-schema.
func makeTables(store *config.SQL, embedded string) error {
	logger := log.NewNoopLogger()
	connection, err := sql.NewConnection(store, logger)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := schema.NewSetupSchemaTask(connection, &schema.SetupConfig{InitialVersion: "0.0"}, logger).Run(); err != nil {
		return err
	}
	update := &schema.UpdateConfig{DBName: store.DatabaseName, SchemaName: embedded}
	return schema.NewUpdateSchemaTask(connection, update, logger).Run()
}

// connect returns a client of a namespace that it registers. The server takes some seconds until it knows it.
func connect(ctx context.Context, frontend string) (client.Client, error) {
	options := client.Options{
		HostPort:  frontend,
		Namespace: name,
		Logger:    sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	}
	var caller client.Client
	err := eventually(func() (err error) {
		caller, err = client.Dial(options)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = eventually(func() error {
		_, err := caller.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
			Namespace:                        name,
			WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
		})
		if exists := (*serviceerror.NamespaceAlreadyExists)(nil); errors.As(err, &exists) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return caller, eventually(func() error {
		_, err := caller.DescribeTaskQueue(ctx, name, enums.TASK_QUEUE_TYPE_WORKFLOW)
		return err
	})
}

// eventually tries again until it works or patience ends.
func eventually(work func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := work()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// began is when each step of the running workflow began.
var began struct {
	sync.Mutex
	times []time.Time
}

func step(context.Context) (string, error) {
	began.Lock()
	defer began.Unlock()
	began.times = append(began.times, time.Now())
	return "It is done.", nil
}

// activities are durable each before the next begins.
func activities(ctx workflow.Context, count int) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	for range count {
		if err := workflow.ExecuteActivity(ctx, step).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// localActivities are recorded together, when the task of the workflow in which they ran ends.
func localActivities(ctx workflow.Context, count int) error {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
	for range count {
		if err := workflow.ExecuteLocalActivity(ctx, step).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// steps runs a workflow to warm up and another one, and measures from the start of a step to the start of the next.
func steps(ctx context.Context, caller client.Client, kind any, count int) (figures, error) {
	working := worker.New(caller, name, worker.Options{})
	working.RegisterWorkflow(activities)
	working.RegisterWorkflow(localActivities)
	working.RegisterActivity(step)
	if err := working.Start(); err != nil {
		return nil, err
	}
	defer working.Stop()
	for _, length := range []int{warming, count} {
		began.times = nil
		run, err := caller.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: name}, kind, length)
		if err != nil {
			return nil, err
		}
		if err := run.Get(ctx, nil); err != nil {
			return nil, err
		}
	}
	if len(began.times) != count {
		return nil, fmt.Errorf("%d steps began instead of %d", len(began.times), count)
	}
	elapsed := began.times[count-1].Sub(began.times[0])
	return figures{"step": 1e3 * elapsed.Seconds() / float64(count-1)}, nil
}
