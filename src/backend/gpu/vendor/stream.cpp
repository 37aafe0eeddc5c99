#include <algorithm>
#include <chrono>
#include <thread>

#include "backend/gpu/device.h"
#include "backend/gpu/launched.h"
#include "backend/gpu/vendor/blas.h"
#include "backend/gpu/vendor/parts.h"
#include "base/error.h"

namespace hearth::gpu {
namespace {

using namespace vendor;
using std::chrono::steady_clock;

constexpr std::chrono::microseconds kFirstPause{20};
constexpr std::chrono::microseconds kLongestPause{1000};

/// The first launch that was refused since somebody asked.
std::atomic<int> refused_launch = RUNTIME(Success);

Result take_refused_launch() { return static_cast<Result>(refused_launch.exchange(RUNTIME(Success))); }

}  // namespace

void launched(int result) {
  int none = RUNTIME(Success);
  if (result != none) refused_launch.compare_exchange_strong(none, result);
}

struct Event::Parts {
  RUNTIME(Event_t) event = nullptr;
  int gpu = -1;

  void release() {
    if (event != nullptr && !no_answer) ignore(RUNTIME(EventDestroy)(event));
    event = nullptr;
  }
};

struct Recording::Parts {
  RUNTIME(GraphExec_t) graph = nullptr;
};

struct Stream::Parts {
  Device::Parts* device = nullptr;
  NativeStream stream = nullptr;
  std::unique_ptr<Blas> blas = nullptr;  ///< opened by the first matmul

  /// By its own recording, or by one of a stream that it waited for.
  bool is_recorded() const {
    auto status = RUNTIME(StreamCaptureStatusNone);
    ignore(RUNTIME(StreamIsCapturing)(stream, &status));
    return status != RUNTIME(StreamCaptureStatusNone);
  }
  void check(Result result, std::string_view doing) const {
    if (result == RUNTIME(Success)) return;
    if (!is_recorded()) fail(result, doing);
    ignore(result);
    device->broken_recording = true;
  }
  void copy(void* to, const void* from, int64_t num_bytes, RUNTIME(MemcpyKind) kind,
            std::string_view doing) const {
    make_current(*device);
    check(RUNTIME(MemcpyAsync)(to, from, static_cast<size_t>(num_bytes), kind, stream), doing);
  }
};

Recording::Recording(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Recording::~Recording() {
  if (!no_answer) ignore(RUNTIME(GraphExecDestroy)(parts_->graph));
}

Event::Event() : parts_(std::make_unique<Parts>()) {}
Event::~Event() { parts_->release(); }
double Event::seconds_since(const Event& earlier) const {
  float milliseconds = 0;
  check(RUNTIME(EventElapsedTime)(&milliseconds, earlier.parts().event, parts_->event),
        "asking for the time between events");
  return static_cast<double>(milliseconds) / 1e3;
}

Stream::Stream(Device& device) : parts_(std::make_unique<Parts>(Parts{.device = &device.parts()})) {
  make_current(*parts_->device);
  check(RUNTIME(StreamCreateWithFlags)(&parts_->stream, RUNTIME(StreamNonBlocking)), "making a stream");
}
Stream::~Stream() {
  parts_->blas.reset();
  parts_->device->patience.forget(this);
  if (!no_answer) ignore(RUNTIME(StreamDestroy)(parts_->stream));
}

void Stream::copy_in(std::byte* device, const void* host, int64_t num_bytes) {
  parts_->copy(device, host, num_bytes, RUNTIME(MemcpyHostToDevice), "a copy to the GPU");
}
void Stream::copy_out(void* host, const std::byte* device, int64_t num_bytes) {
  parts_->copy(host, device, num_bytes, RUNTIME(MemcpyDeviceToHost), "a copy from the GPU");
}
void Stream::fill(std::byte* device, int value, int64_t num_bytes) {
  make_current(*parts_->device);
  parts_->check(RUNTIME(MemsetAsync)(device, value, static_cast<size_t>(num_bytes), parts_->stream),
                "filling memory");
}

void Stream::call(void (*function)(void*), void* argument) {
  make_current(*parts_->device);
  parts_->check(RUNTIME(LaunchHostFunc)(parts_->stream, function, argument), "a call of the host");
}

void Stream::multiply(const BlasMatmul& matmul, const BlasArrays& arrays) {
  make_current(*parts_->device);
  try {
    if (!parts_->blas) parts_->blas = std::make_unique<Blas>(parts_->stream);
    parts_->blas->multiply(matmul, arrays);
  } catch (const DeviceError&) {
    if (!parts_->is_recorded()) throw;
    parts_->device->broken_recording = true;
  }
}
void Stream::record(Event& event) {
  make_current(*parts_->device);
  Event::Parts& moment = event.parts();
  if (moment.gpu != parts_->device->index) {
    moment.release();
    parts_->check(RUNTIME(EventCreate)(&moment.event), "making an event");
    moment.gpu = parts_->device->index;
  }
  parts_->check(RUNTIME(EventRecord)(moment.event, parts_->stream), "recording an event");
}
void Stream::wait(const Event& event) {
  if (event.parts().event == nullptr) return;
  make_current(*parts_->device);
  parts_->check(RUNTIME(StreamWaitEvent)(parts_->stream, event.parts().event, 0), "waiting for an event");
}

void Stream::start_recording() {
  make_current(*parts_->device);
  check(RUNTIME(StreamBeginCapture)(parts_->stream, RUNTIME(StreamCaptureModeThreadLocal)),
        "starting to record");
  parts_->device->broken_recording = false;
}

std::unique_ptr<Recording> Stream::finish_recording() {
  make_current(*parts_->device);
  RUNTIME(Graph_t) graph = nullptr;
  Result result = RUNTIME(StreamEndCapture)(parts_->stream, &graph);
  const Result refused = take_refused_launch();
  if (result == RUNTIME(Success)) result = refused;
  auto kept = std::make_unique<Recording::Parts>();
  if (result == RUNTIME(Success) && !parts_->device->broken_recording)
    result = RUNTIME(GraphInstantiateWithFlags)(&kept->graph, graph, 0);
  ignore(result);
  if (graph != nullptr) ignore(RUNTIME(GraphDestroy)(graph));
  return kept->graph == nullptr ? nullptr : std::make_unique<Recording>(std::move(kept));
}

void Stream::replay(const Recording& recording) {
  make_current(*parts_->device);
  check(RUNTIME(GraphLaunch)(recording.parts().graph, parts_->stream), "repeating a recording");
}

void Stream::allow(double work_seconds, double wait_seconds) {
  parts_->device->patience.allow(this, work_seconds, wait_seconds);
}
double Stream::patience_seconds() const { return parts_->device->patience.seconds(); }

void Stream::synchronize(double deadline_seconds) {
  make_current(*parts_->device);
  if (parts_->is_recorded()) {
    parts_->device->broken_recording = true;
    return;
  }
  const auto deadline = steady_clock::now() + std::chrono::duration<double>(deadline_seconds);
  auto pause = kFirstPause;
  Result result = RUNTIME(StreamQuery)(parts_->stream);
  while (result == RUNTIME(ErrorNotReady)) {
    ignore(result);
    if (steady_clock::now() > deadline) {
      no_answer = true;
      throw DeviceError(
          DeviceError::Kind::no_answer,
          fmt::format("{} gave no answer for {:.0f} s", parts_->device->info.name, deadline_seconds));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
    result = RUNTIME(StreamQuery)(parts_->stream);
  }
  vendor::check(take_refused_launch(), "a kernel's launch");
  vendor::check(result, "work on the GPU");
  parts_->device->patience.forget(this);
}

void* Stream::handle() {
  make_current(*parts_->device);
  return parts_->stream;
}

}  // namespace hearth::gpu
