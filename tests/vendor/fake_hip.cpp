#include "fake_hip.h"

#include <hip/hip_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "../machine_code/capture.h"

FakeHip& fake_hip() {
  static FakeHip one;
  return one;
}

namespace {

hipError_t last = hipSuccess;
hipError_t answer(hipError_t error) {
  if (error != hipSuccess) last = error;
  return error;
}
bool refuses(const char* function) { return fake_hip().refused == function; }
capture::Stream& of(hipStream_t stream) { return *reinterpret_cast<capture::Stream*>(stream); }
capture::Event& of(hipEvent_t event) { return *reinterpret_cast<capture::Event*>(event); }
using Graph = std::shared_ptr<capture::Recording>;

template <typename F>
hipError_t perform(const char* function, hipStream_t stream, F f) {
  if (refuses(function)) return answer(hipErrorStreamCaptureUnsupported);
  if (of(stream).records()) {
    of(stream).recording->add(&of(stream), f);
  } else {
    f();
  }
  return hipSuccess;
}

}  // namespace

extern "C" {

hipError_t hipGetDeviceCount(int* count) { return *count = 1, hipSuccess; }
hipError_t hipSetDevice(int) { return hipSuccess; }
hipError_t hipDriverGetVersion(int* version) { return *version = 70200000, hipSuccess; }
hipError_t hipRuntimeGetVersion(int* version) { return hipDriverGetVersion(version); }
hipError_t hipDeviceGetPCIBusId(char* address, int size, int) {
  std::snprintf(address, static_cast<size_t>(size), "0000:03:00.0");
  return hipSuccess;
}
hipError_t hipDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<size_t>(size), "a GPU of gfx9999");
  return hipSuccess;
}
hipError_t hipDeviceTotalMem(size_t* bytes, int) { return *bytes = size_t{20} << 30, hipSuccess; }
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t which, int) {
  *value = which == hipDeviceAttributeIntegrated            ? 0
           : which == hipDeviceAttributeMultiprocessorCount ? 84
                                                            : 65536;
  return hipSuccess;
}
hipError_t hipGetDevicePropertiesR0600(char* properties, int device) {
  hipDeviceGetName(properties, 256, device);
  std::strcpy(properties + fake_hip().architecture_offset, "gfx1100:sramecc-");
  return hipSuccess;
}
hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 1, *greatest = -1, hipSuccess;
}
hipError_t hipMemGetInfo(size_t* free, size_t* total) {
  return *free = *total = size_t{20} << 30, hipSuccess;
}
hipError_t hipMalloc(void** memory, size_t bytes) { return *memory = std::malloc(bytes), hipSuccess; }
hipError_t hipFree(void* memory) { return std::free(memory), hipSuccess; }
hipError_t hipHostMalloc(void** memory, size_t bytes, unsigned flags) {
  fake_hip().host_flags = flags;
  return hipMalloc(memory, bytes);
}
hipError_t hipHostFree(void* memory) { return hipFree(memory); }

hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind, hipStream_t stream) {
  return perform("hipMemcpyAsync", stream, [=] { std::memcpy(to, from, bytes); });
}
hipError_t hipMemsetAsync(void* to, int value, size_t bytes, hipStream_t stream) {
  return perform("hipMemsetAsync", stream, [=] { std::memset(to, value, bytes); });
}
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* argument) {
  return perform("hipLaunchHostFunc", stream, [=] { function(argument); });
}
hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned, int priority) {
  fake_hip().priorities.push_back(priority);
  *stream = reinterpret_cast<hipStream_t>(new capture::Stream);
  return hipSuccess;
}
hipError_t hipStreamDestroy(hipStream_t stream) { return delete &of(stream), hipSuccess; }
hipError_t hipStreamQuery(hipStream_t) {
  ++fake_hip().num_queries;
  return std::chrono::steady_clock::now() < fake_hip().busy_until ? answer(hipErrorNotReady) : hipSuccess;
}
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned) {
  if (refuses("hipStreamWaitEvent")) return answer(hipErrorStreamCaptureUnsupported);
  ++fake_hip().num_waits;
  return capture::wait(of(stream), of(event)) ? hipSuccess : answer(hipErrorInvalidValue);
}
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  *status = of(stream).records() ? hipStreamCaptureStatusActive : hipStreamCaptureStatusNone;
  return hipSuccess;
}
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode) {
  if (refuses("hipStreamBeginCapture")) return answer(hipErrorStreamCaptureUnsupported);
  of(stream).recording = std::make_shared<capture::Recording>();
  return hipSuccess;
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  const Graph recording = of(stream).recording;
  recording->ended = true;
  if (!recording->is_joined(&of(stream))) return answer(hipErrorStreamCaptureUnjoined);
  *graph = reinterpret_cast<hipGraph_t>(new Graph(recording));
  return hipSuccess;
}
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  fake_hip().event_flags.push_back(flags);
  *event = reinterpret_cast<hipEvent_t>(new capture::Event);
  return hipSuccess;
}
hipError_t hipEventDestroy(hipEvent_t event) { return delete &of(event), hipSuccess; }
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  return of(event).record(of(stream)), hipSuccess;
}
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t, hipEvent_t) {
  return *milliseconds = 1, hipSuccess;
}
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* made, hipGraph_t graph, unsigned long long) {
  if (refuses("hipGraphInstantiate")) return answer(hipErrorOutOfMemory);
  *made = reinterpret_cast<hipGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return hipSuccess;
}
hipError_t hipGraphDestroy(hipGraph_t graph) { return delete reinterpret_cast<Graph*>(graph), hipSuccess; }
hipError_t hipGraphExecDestroy(hipGraphExec_t graph) {
  return delete reinterpret_cast<Graph*>(graph), hipSuccess;
}
hipError_t hipGraphLaunch(hipGraphExec_t graph, hipStream_t stream) {
  const Graph recording = *reinterpret_cast<Graph*>(graph);
  return perform("hipGraphLaunch", stream, [=] {
    for (const auto& step : recording->steps) step();
  });
}
hipError_t hipGetLastError() { return std::exchange(last, hipSuccess); }
const char* hipGetErrorName(hipError_t) { return "hipError"; }
const char* hipGetErrorString(hipError_t error) {
  return error == hipErrorStreamCaptureUnjoined ? "unjoined work" : "no";
}

}  // extern "C"
