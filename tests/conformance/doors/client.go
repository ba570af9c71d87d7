// Tries the server by Triton's gRPC stubs and by net/http: client GRPC_ADDRESS URL. Prints a line of JSON for each check.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"example.com/triton"
)

type (
	Input     = triton.ModelInferRequest_InferInputTensor
	Request   = triton.ModelInferRequest
	Contents  = triton.InferTensorContents
	Parameter = triton.InferParameter
)

var client triton.GRPCInferenceServiceClient
var url string

func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func equal(what string, found, expected interface{}) error {
	if !reflect.DeepEqual(found, expected) {
		return fmt.Errorf("%s is %v, expected %v", what, found, expected)
	}
	return nil
}

func first(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}

func floats(values ...float32) []byte {
	var raw bytes.Buffer
	binary.Write(&raw, binary.LittleEndian, values)
	return raw.Bytes()
}

func toFloats(raw []byte) []float32 {
	found := make([]float32, len(raw)/4)
	for at := range found {
		found[at] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*at:]))
	}
	return found
}

func texts(values ...string) []byte {
	var raw bytes.Buffer
	for _, value := range values {
		binary.Write(&raw, binary.LittleEndian, uint32(len(value)))
		raw.WriteString(value)
	}
	return raw.Bytes()
}

func behave(values ...float32) *Request {
	input := &Input{Name: "x", Datatype: "FP32", Shape: []int64{int64(len(values))}}
	return &Request{ModelName: "behave", Inputs: []*Input{input}, RawInputContents: [][]byte{floats(values...)}}
}

func infer(request *Request) (*triton.ModelInferResponse, error) {
	ctx, cancel := within(30 * time.Second)
	defer cancel()
	return client.ModelInfer(ctx, request)
}

func health() error {
	ctx, cancel := within(30 * time.Second)
	defer cancel()
	live, err := client.ServerLive(ctx, &triton.ServerLiveRequest{})
	if err != nil {
		return err
	}
	ready, err := client.ServerReady(ctx, &triton.ServerReadyRequest{})
	if err != nil {
		return err
	}
	model, err := client.ModelReady(ctx, &triton.ModelReadyRequest{Name: "mirror"})
	if err != nil {
		return err
	}
	return equal("live and ready", []bool{live.Live, ready.Ready, model.Ready}, []bool{true, true, true})
}

func metadata() error {
	ctx, cancel := within(30 * time.Second)
	defer cancel()
	found, err := client.ModelMetadata(ctx, &triton.ModelMetadataRequest{Name: "mirror"})
	if err != nil {
		return err
	}
	var inputs []string
	for _, input := range found.Inputs {
		inputs = append(inputs, fmt.Sprint(input.Name, " ", input.Datatype, " ", input.Shape))
	}
	return equal("the inputs", inputs, []string{"x FP32 [-1]", "texts BYTES [-1]"})
}

func mirrored(typed bool) func() error {
	return func() error {
		x := &Input{Name: "x", Datatype: "FP32", Shape: []int64{3}}
		words := &Input{Name: "texts", Datatype: "BYTES", Shape: []int64{2}}
		request := &Request{ModelName: "mirror", Id: "mine", Inputs: []*Input{x, words}}
		if typed {
			x.Contents = &Contents{Fp32Contents: []float32{1, 2, 3}}
			words.Contents = &Contents{BytesContents: [][]byte{[]byte("abc"), {}}}
		} else {
			request.RawInputContents = [][]byte{floats(1, 2, 3), texts("abc", "")}
		}
		found, err := infer(request)
		if err != nil {
			return err
		}
		return first(
			equal("the id", found.Id, "mine"),
			equal("the first output", found.Outputs[0].Name, "raised"),
			equal("raised", toFloats(found.RawOutputContents[0]), []float32{2, 3, 4}),
			equal("reversed", found.RawOutputContents[1], texts("cba", "")),
		)
	}
}

func refused(request *Request, code codes.Code) func() error {
	return func() error {
		_, err := infer(request)
		return equal("the status", status.Code(err), code)
	}
}

func wrongShape() error {
	request := behave(1, 2, 3, 4)
	request.Inputs[0].Shape = []int64{2, 2}
	return refused(request, codes.InvalidArgument)()
}

func unknownModel() error {
	request := behave(1)
	request.ModelName = "nothing"
	return refused(request, codes.NotFound)()
}

func number(value int64) *Parameter {
	return &Parameter{ParameterChoice: &triton.InferParameter_Int64Param{Int64Param: value}}
}

func stream(requests ...*Request) ([]*triton.ModelStreamInferResponse, error) {
	ctx, cancel := within(30 * time.Second)
	defer cancel()
	both, err := client.ModelStreamInfer(ctx)
	if err != nil {
		return nil, err
	}
	for _, request := range requests {
		if err := both.Send(request); err != nil {
			return nil, err
		}
	}
	if err := both.CloseSend(); err != nil {
		return nil, err
	}
	var found []*triton.ModelStreamInferResponse
	for {
		answer, err := both.Recv()
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		found = append(found, answer)
	}
}

func parts() error {
	request := behave(0, 1)
	request.ModelName = "count"
	wanted := &Parameter{ParameterChoice: &triton.InferParameter_BoolParam{BoolParam: true}}
	request.Parameters = map[string]*Parameter{"num_parts": number(3), "triton_enable_empty_final_response": wanted}
	answers, err := stream(request)
	if err != nil {
		return err
	}
	if err := equal("the number of answers", len(answers), 4); err != nil {
		return err
	}
	for at := 0; at < 3; at++ {
		part := toFloats(answers[at].InferResponse.RawOutputContents[0])
		if err := equal("a part", part, []float32{float32(at + 1), float32(at + 2)}); err != nil {
			return err
		}
	}
	return equal("the last is final", answers[3].InferResponse.Parameters["triton_final_response"].GetBoolParam(), true)
}

func errorInStream() error {
	bad := behave(1)
	bad.ModelName = "nothing"
	good := behave(2)
	good.Id = "good"
	answers, err := stream(bad, good)
	if err != nil {
		return err
	}
	var failed, passed int
	for _, answer := range answers {
		if answer.ErrorMessage != "" {
			failed++
		} else if answer.InferResponse.Id == "good" {
			passed++
		}
	}
	return equal("errors and answers", []int{failed, passed}, []int{1, 1})
}

func concurrent() error {
	const workers, rounds = 32, 8
	failures := make(chan error, workers)
	var group sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			for round := 0; round < rounds; round++ {
				value := float32(worker*rounds + round)
				found, err := infer(behave(value))
				if err == nil {
					err = equal("an answer", toFloats(found.RawOutputContents[0]), []float32{value})
				}
				if err != nil {
					failures <- err
					return
				}
			}
		}(worker)
	}
	group.Wait()
	close(failures)
	return <-failures
}

func deadline() error {
	ctx, cancel := within(200 * time.Millisecond)
	defer cancel()
	request := behave(1)
	rest := &Parameter{ParameterChoice: &triton.InferParameter_DoubleParam{DoubleParam: 2}}
	request.Parameters = map[string]*Parameter{"rest_s": rest}
	_, err := client.ModelInfer(ctx, request)
	return equal("the status", status.Code(err), codes.DeadlineExceeded)
}

// post returns the status, the length of the JSON in front of binary tensors, and the body.
func post(path, contentType string, jsonLength int, body io.Reader) (int, int, []byte, error) {
	request, err := http.NewRequest("POST", url+path, body)
	if err != nil {
		return 0, 0, nil, err
	}
	request.Header.Set("Content-Type", contentType)
	if jsonLength > 0 {
		request.Header.Set("Inference-Header-Content-Length", strconv.Itoa(jsonLength))
	}
	answer, err := (&http.Client{Timeout: 30 * time.Second}).Do(request)
	if err != nil {
		return 0, 0, nil, err
	}
	defer answer.Body.Close()
	found, err := io.ReadAll(answer.Body)
	length, _ := strconv.Atoi(answer.Header.Get("Inference-Header-Content-Length"))
	return answer.StatusCode, length, found, err
}

func overJSON() error {
	body := `{"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "data": [1, 2, 3]}]}`
	code, _, found, err := post("/v2/models/behave/infer", "application/json", 0, strings.NewReader(body))
	if err != nil {
		return err
	}
	var answer struct{ Outputs []struct{ Data []float32 } }
	if err := json.Unmarshal(found, &answer); err != nil {
		return err
	}
	return first(equal("the status", code, 200), equal("the data", answer.Outputs[0].Data, []float32{1, 2, 3}))
}

func overBinary() error {
	head := `{"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "parameters": {"binary_data_size": 12}}],
		"parameters": {"binary_data_output": true}}`
	body := io.MultiReader(strings.NewReader(head), bytes.NewReader(floats(1, 2, 3)))
	code, length, found, err := post("/v2/models/behave/infer", "application/octet-stream", len(head), body)
	if err != nil {
		return err
	}
	if err := equal("the status", code, 200); err != nil {
		return err
	}
	return equal("the data", toFloats(found[length:]), []float32{1, 2, 3})
}

func overHTTPRefused() error {
	body := `{"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}]}`
	wrong, _, _, err := post("/v2/models/behave/infer", "application/json", 0, strings.NewReader(body))
	if err != nil {
		return err
	}
	unknown, _, _, err := post("/v2/models/nothing/infer", "application/json", 0, strings.NewReader(body))
	if err != nil {
		return err
	}
	return equal("the statuses", []int{wrong, unknown}, []int{400, 404})
}

func run() error {
	code, _, found, err := post("/run/words", "application/json", 0, strings.NewReader(`{"text": "To be"}`))
	if err != nil {
		return err
	}
	return first(equal("the status", code, 200), equal("the answer", string(found), `{"words":["to","be"],"total":2}`))
}

func main() {
	url = os.Args[2]
	connection, err := grpc.Dial(os.Args[1], grpc.WithInsecure())
	if err != nil {
		panic(err)
	}
	defer connection.Close()
	client = triton.NewGRPCInferenceServiceClient(connection)
	for _, check := range []struct {
		name string
		run  func() error
	}{
		{"gRPC: health", health},
		{"gRPC: metadata", metadata},
		{"gRPC: typed contents and BYTES", mirrored(true)},
		{"gRPC: raw contents and BYTES", mirrored(false)},
		{"gRPC: a wrong shape", wrongShape},
		{"gRPC: an unknown model", unknownModel},
		{"gRPC: a stream of parts, with its end", parts},
		{"gRPC: an error leaves a stream open", errorInStream},
		{"gRPC: 32 requests at a time", concurrent},
		{"gRPC: a deadline that passes", deadline},
		{"HTTP: JSON", overJSON},
		{"HTTP: binary tensors in a body of unknown length", overBinary},
		{"HTTP: a wrong shape and an unknown model", overHTTPRefused},
		{"HTTP: an object to /run", run},
	} {
		detail := ""
		if err := check.run(); err != nil {
			detail = err.Error()
		}
		line, _ := json.Marshal(map[string]string{"name": check.name, "detail": detail})
		fmt.Println(string(line))
	}
}
