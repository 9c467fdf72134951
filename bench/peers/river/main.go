// Command bench measures River as our other peers are measured.
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
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	payloadSize = 300                   // as in bench/payload.py
	fillSize    = 1000                  // jobs of one insert while a table is filled
	period      = 50 * time.Millisecond // the figures of bench/latency.py, and its half second
	warmUp      = 5
	ready       = 500 * time.Millisecond
	patience    = 10 * time.Second
	settling    = 1500 * time.Millisecond // as in bench/idle.py
)

// The settings of River's own benchmark: its defaults fetch ten times a second, which bounds what a worker can do.
var draining = settings{workers: 2000, cooldown: 2 * time.Millisecond, poll: 20 * time.Millisecond}

// Notifications tell of new jobs, so the poll stays at its default. The default cooldown alone would delay a job by up
// to 100 ms; this is the shortest allowed.
var waiting = settings{workers: 100, cooldown: river.FetchCooldownMin, poll: river.FetchPollIntervalDefault}

type settings struct {
	workers        int
	cooldown, poll time.Duration
}

type figures map[string]float64

type request struct {
	Command string  `json:"command"`
	Server  string  `json:"server"`
	Schema  string  `json:"schema"`
	Count   int     `json:"count"`
	Size    int     `json:"size"`
	Seconds float64 `json:"seconds"`
}

// Accepted is the event that everybody carries.
type Accepted struct {
	Number int    `json:"orderAttemptId"`
	Market string `json:"market"`
	Note   string `json:"note"`
}

// Kind names the job.
func (Accepted) Kind() string { return "OrderAccepted" }

func main() {
	requests := make(chan request)
	go read(requests)
	peer := &peer{}
	answers := json.NewEncoder(os.Stdout)
	for request := range requests {
		var answer [2]any
		found, err := peer.do(context.Background(), request)
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

type peer struct {
	pool   *pgxpool.Pool
	schema string
}

func (p *peer) do(ctx context.Context, asked request) (figures, error) {
	switch asked.Command {
	case "open":
		return figures{}, p.open(ctx, asked.Server, asked.Schema)
	case "fill":
		return p.publishBatches(ctx, asked.Count, fillSize)
	case "drain":
		return figures{}, p.drain(ctx, asked.Count)
	case "publish-batches":
		if _, err := p.publishBatches(ctx, asked.Size, asked.Size); err != nil { // statements prepared, tables known
			return nil, err
		}
		return p.publishBatches(ctx, asked.Count, asked.Size)
	case "publish-singles":
		if _, err := p.publishSingles(ctx, 1); err != nil {
			return nil, err
		}
		return p.publishSingles(ctx, asked.Count)
	case "latency":
		return p.latency(ctx, asked.Count)
	case "idle":
		return p.idle(ctx, time.Duration(asked.Seconds*float64(time.Second)))
	}
	return nil, fmt.Errorf("unknown command %q", asked.Command)
}

// open connects and makes River's tables.
func (p *peer) open(ctx context.Context, server, schema string) (err error) {
	if p.pool, err = pgxpool.New(ctx, server); err != nil {
		return err
	}
	p.schema = schema
	migrator, err := rivermigrate.New(riverpgxv5.New(p.pool), &rivermigrate.Config{Schema: schema, Logger: errorLog()})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// publisher is a client that only inserts. It notifies no more often than once in a cooldown.
func (p *peer) publisher(cooldown time.Duration) (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(p.pool), &river.Config{
		Schema:        p.schema,
		Logger:        errorLog(),
		FetchCooldown: cooldown,
	})
}

// worker is a client that calls work for each job.
func (p *peer) worker(with settings, work func(Accepted)) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[Accepted]) error {
		work(job.Args)
		return nil
	}))
	return river.NewClient(riverpgxv5.New(p.pool), &river.Config{
		Schema:            p.schema,
		Logger:            errorLog(),
		FetchCooldown:     with.cooldown,
		FetchPollInterval: with.poll,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: with.workers}},
		Workers:           workers,
	})
}

// drain works until the last completion is written: River tells of a completion only then.
func (p *peer) drain(ctx context.Context, count int) error {
	var handled atomic.Int64
	all := make(chan struct{})
	client, err := p.worker(draining, func(Accepted) {
		if handled.Add(1) == int64(count) {
			close(all)
		}
	})
	if err != nil {
		return err
	}
	completed, cancel := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: count, // it would drop what does not fit
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
	})
	defer cancel()
	if err := client.Start(ctx); err != nil {
		return err
	}
	<-all
	stopped := make(chan error, 1)
	go func() { stopped <- client.Stop(ctx) }() // writes at once what its next tick would write
	for number := range count {
		if _, open := <-completed; !open {
			return fmt.Errorf("%d of %d jobs are completed", number, count)
		}
	}
	return nil
}

// publishBatches uses COPY, which is its faster way.
func (p *peer) publishBatches(ctx context.Context, count, size int) (figures, error) {
	client, err := p.publisher(river.FetchCooldownDefault)
	if err != nil {
		return nil, err
	}
	documents := payloads(count)
	started := time.Now()
	for some := range slices.Chunk(documents, size) {
		jobs := make([]river.InsertManyParams, len(some))
		for index, document := range some {
			jobs[index].Args = document
		}
		inserted, err := client.InsertManyFast(ctx, jobs)
		if err != nil {
			return nil, err
		}
		if inserted != len(some) {
			return nil, fmt.Errorf("inserted %d of %d jobs", inserted, len(some))
		}
	}
	return rate(count, started), nil
}

func (p *peer) publishSingles(ctx context.Context, count int) (figures, error) {
	client, err := p.publisher(river.FetchCooldownDefault)
	if err != nil {
		return nil, err
	}
	documents := payloads(count)
	started := time.Now()
	for _, document := range documents {
		if _, err := client.Insert(ctx, document, nil); err != nil {
			return nil, err
		}
	}
	return rate(count, started), nil
}

// latency follows bench/latency.py: 20 jobs a second, pauses that vary a little, from just before the insert to the
// start of the work.
func (p *peer) latency(ctx context.Context, count int) (figures, error) {
	total := count + warmUp
	sent := make([]time.Time, total)
	arrivals := make(chan time.Duration, total)
	client, err := p.worker(waiting, func(document Accepted) { arrivals <- time.Since(sent[document.Number]) })
	if err != nil {
		return nil, err
	}
	publisher, err := p.publisher(waiting.cooldown)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	time.Sleep(ready)
	pauses := rand.New(rand.NewPCG(1, 1))
	for number, document := range payloads(total) {
		sent[number] = time.Now()
		if _, err := publisher.Insert(ctx, document, nil); err != nil {
			return nil, err
		}
		time.Sleep(time.Duration(float64(period) * (0.8 + 0.4*pauses.Float64())))
	}
	late := time.After(patience)
	taken := make([]float64, total)
	for number := range taken {
		select {
		case elapsed := <-arrivals:
			taken[number] = 1e3 * elapsed.Seconds()
		case <-late:
			return nil, fmt.Errorf("%d of %d jobs arrived", number, total)
		}
	}
	taken = taken[warmUp:]
	return figures{"p50": percentile(taken, 50), "p99": percentile(taken, 99)}, client.Stop(ctx)
}

// idle follows bench/idle.py: the CPU time of this process, in percent of one core.
func (p *peer) idle(ctx context.Context, pause time.Duration) (figures, error) {
	var handled atomic.Int64
	client, err := p.worker(waiting, func(Accepted) { handled.Add(1) })
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	time.Sleep(settling)
	before, started := used(), time.Now()
	time.Sleep(pause)
	cpu, elapsed := used()-before, time.Since(started)
	if handled.Load() != 0 {
		return nil, errors.New("there was something to do")
	}
	return figures{"cpu": 100 * cpu.Seconds() / elapsed.Seconds()}, client.Stop(ctx)
}

// payloads makes the first count payloads; it is the caller's own work, and no part of a measurement.
func payloads(count int) []Accepted {
	made := make([]Accepted, count)
	for number := range made {
		made[number] = Accepted{Number: number, Market: "KRW-BTC"}
		encoded, err := json.Marshal(made[number])
		if err != nil {
			panic(err)
		}
		made[number].Note = strings.Repeat("x", payloadSize-len(encoded))
	}
	return made
}

func rate(count int, started time.Time) figures {
	return figures{"rate": float64(count) / time.Since(started).Seconds()}
}

// percentile is that of bench/stats.py: nearest rank.
func percentile(values []float64, percent float64) float64 {
	ordered := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	return ordered[max(0, int(math.Ceil(percent/100*float64(len(ordered))))-1)]
}

func used() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func errorLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}
