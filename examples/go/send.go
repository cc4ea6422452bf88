// Hands one SMS and one e-mail to Hongyan; prints their ids. Uses franz-go.
//
//	go run . +8613800000001 ann@example.com
//
// The topics must exist (hongyan topics apply), and the templates too (../templates.toml).
// docs/producing.md has the reasons for each setting.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type template struct {
	ID     string         `json:"id"`
	Params map[string]any `json:"params"`
}

// envelope is one notification.
type envelope struct {
	V           int      `json:"v"`
	ID          string   `json:"id"`
	BizID       string   `json:"biz_id,omitempty"`
	Channel     string   `json:"channel"`
	Kind        string   `json:"kind"`
	Receivers   []string `json:"receivers"`
	Template    template `json:"template"`
	CreatedAt   int64    `json:"created_at"`
	TTLMs       int64    `json:"ttl_ms,omitempty"`
	OrderingKey string   `json:"ordering_key,omitempty"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: send PHONE MAIL")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "not everything was acknowledged; send it again under the same ids:", err)
		os.Exit(1)
	}
}

func run(phone, mail string) error {
	sms := newEnvelope("sms", "verification", phone,
		template{"login-code", map[string]any{"code": "4711"}})
	sms.TTLMs = 300_000
	paid := newEnvelope("email", "notice", mail,
		template{"order-paid", map[string]any{"order": "1001", "total": 1299.5}})
	paid.OrderingKey = "order-1001"

	// franz-go waits for all in-sync replicas and is idempotent by default.
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(setting("HONGYAN_KAFKA__BOOTSTRAP", "127.0.0.1:19092"), ",")...),
		kgo.ClientID("shop"),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordDeliveryTimeout(30*time.Second),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // murmur2, as Java's
	)
	if err != nil {
		return err
	}
	defer client.Close()

	var records []*kgo.Record
	for _, one := range []envelope{sms, paid} {
		record, err := recordOf(one)
		if err != nil {
			return err
		}
		records = append(records, record)
	}
	if err := client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		return err
	}
	fmt.Println(sms.ID)
	fmt.Println(paid.ID)
	return nil
}

func recordOf(one envelope) (*kgo.Record, error) {
	value, err := json.Marshal(one)
	if err != nil {
		return nil, err
	}
	key := one.OrderingKey
	if key == "" {
		key = one.ID
	}
	prefix := setting("HONGYAN_KAFKA__TOPIC_PREFIX", "hongyan")
	return &kgo.Record{
		Topic:   fmt.Sprintf("%s.dispatch.%s.%s", prefix, one.Channel, one.Kind),
		Key:     []byte(key),
		Value:   value,
		Headers: []kgo.RecordHeader{{Key: "hongyan-id", Value: []byte(one.ID)}},
	}, nil
}

func newEnvelope(channel, kind, receiver string, named template) envelope {
	now := time.Now().UnixMilli()
	return envelope{
		V: 1, ID: newID(now), BizID: "order-1001", Channel: channel, Kind: kind,
		Receivers: []string{receiver}, Template: named, CreatedAt: now,
	}
}

// newID returns an id that sorts by time. Make it once, and keep it with the order: a repeat under
// the same id doubles nothing.
func newID(now int64) string {
	random := make([]byte, 10)
	if _, err := rand.Read(random); err != nil {
		panic(err)
	}
	return fmt.Sprintf("%012x%x", now, random)
}

func setting(name, otherwise string) string {
	if found := os.Getenv(name); found != "" {
		return found
	}
	return otherwise
}
