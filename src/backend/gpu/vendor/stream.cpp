#include <algorithm>
#include <chrono>
#include <thread>

#include "backend/gpu/launched.h"
#include "backend/gpu/vendor/blas.h"
#include "backend/gpu/vendor/parts.h"
#include "base/error.h"

/// Streams of HIP and CUDA. Recording is stream capture: work is added to a graph instead of being run. Work
/// that cannot be captured only marks the recording as broken instead of throwing; finish_recording() then
/// returns null, and the caller queues the work each time. synchronize() polls with a timeout, because a
/// blocking wait for a hung GPU never returns.
namespace hearth::gpu {
namespace {

using namespace vendor;
using std::chrono::steady_clock;

constexpr std::chrono::microseconds kFirstPause{20};
constexpr std::chrono::microseconds kLongestPause{1000};

/// Result code of the first launch that failed since the last synchronize(); Success if none did.
std::atomic<int> refused_launch = RUNTIME(Success);

Result take_refused_launch() { return static_cast<Result>(refused_launch.exchange(RUNTIME(Success))); }

struct VendorEvent : Event::Parts {
  RUNTIME(Event_t) event = nullptr;
  int gpu = -1;

  ~VendorEvent() override { release(); }
  void release() {
    if (event != nullptr && !timed_out) ignore(RUNTIME(EventDestroy)(event));
    event = nullptr;
  }
  double seconds_since(const Event::Parts& earlier) const override {
    float milliseconds = 0;
    check(RUNTIME(EventElapsedTime)(&milliseconds, static_cast<const VendorEvent&>(earlier).event, event),
          "reading the time between events");
    return static_cast<double>(milliseconds) / 1e3;
  }
};

struct VendorRecording : Recording::Parts {
  RUNTIME(GraphExec_t) graph = nullptr;

  ~VendorRecording() override {
    if (graph != nullptr && !timed_out) ignore(RUNTIME(GraphExecDestroy)(graph));
  }
};

class VendorStream : public Stream::Parts {
 public:
  explicit VendorStream(SharedParts& gpu) : gpu_(gpu) {
    gpu_.make_current();
    vendor::check(RUNTIME(StreamCreateWithFlags)(&stream_, RUNTIME(StreamNonBlocking)), "creating a stream");
  }
  ~VendorStream() override {
    blas_.reset();
    gpu_.wait_timeout.forget(this);
    if (!timed_out) ignore(RUNTIME(StreamDestroy)(stream_));
  }

  void copy_in(std::byte* device, const void* host, int64_t num_bytes) override {
    copy(device, host, num_bytes, RUNTIME(MemcpyHostToDevice), "a copy to the GPU");
  }
  void copy_out(void* host, const std::byte* device, int64_t num_bytes) override {
    copy(host, device, num_bytes, RUNTIME(MemcpyDeviceToHost), "a copy from the GPU");
  }
  void fill(std::byte* device, int value, int64_t num_bytes) override {
    gpu_.make_current();
    check(RUNTIME(MemsetAsync)(device, value, static_cast<size_t>(num_bytes), stream_), "filling memory");
  }
  void call(void (*function)(void*), void* argument) override {
    gpu_.make_current();
    check(RUNTIME(LaunchHostFunc)(stream_, function, argument), "queuing a call on the host");
  }
  void multiply(const BlasMatmul& matmul, const BlasArrays& arrays) override;
  void record(std::unique_ptr<Event::Parts>& event) override;
  void wait(const Event::Parts& event) override {
    gpu_.make_current();
    check(RUNTIME(StreamWaitEvent)(stream_, static_cast<const VendorEvent&>(event).event, 0),
          "waiting for an event");
  }
  void start_recording() override;
  std::unique_ptr<Recording::Parts> finish_recording() override;
  void replay(const Recording::Parts& recording) override {
    gpu_.make_current();
    vendor::check(RUNTIME(GraphLaunch)(static_cast<const VendorRecording&>(recording).graph, stream_),
                  "replaying a recording");
  }
  void allow(double work_seconds, double wait_seconds) override {
    gpu_.wait_timeout.allow(this, work_seconds, wait_seconds);
  }
  double timeout_seconds() const override { return gpu_.wait_timeout.seconds(); }
  void synchronize(double deadline_seconds) override;
  void* handle() override {
    gpu_.make_current();
    return stream_;
  }

 private:
  /// True if this stream is being captured, by its own recording or by that of a stream that it waits for.
  bool is_recorded() const {
    auto status = RUNTIME(StreamCaptureStatusNone);
    ignore(RUNTIME(StreamIsCapturing)(stream_, &status));
    return status != RUNTIME(StreamCaptureStatusNone);
  }
  void check(Result result, std::string_view doing) {
    if (result == RUNTIME(Success)) return;
    if (!is_recorded()) fail(result, doing);
    ignore(result);
    gpu_.broken_recording = true;
  }
  void copy(void* to, const void* from, int64_t num_bytes, RUNTIME(MemcpyKind) kind, std::string_view doing) {
    gpu_.make_current();
    check(RUNTIME(MemcpyAsync)(to, from, static_cast<size_t>(num_bytes), kind, stream_), doing);
  }

  SharedParts& gpu_;
  NativeStream stream_ = nullptr;
  std::unique_ptr<Blas> blas_;  ///< opened by the first matmul
};

void VendorStream::multiply(const BlasMatmul& matmul, const BlasArrays& arrays) {
  gpu_.make_current();
  try {
    if (!blas_) blas_ = std::make_unique<Blas>(stream_);
    blas_->multiply(matmul, arrays);
  } catch (const DeviceError&) {
    if (!is_recorded()) throw;
    gpu_.broken_recording = true;
  }
}

void VendorStream::record(std::unique_ptr<Event::Parts>& event) {
  gpu_.make_current();
  if (!event) event = std::make_unique<VendorEvent>();
  auto& moment = static_cast<VendorEvent&>(*event);
  if (moment.gpu != gpu_.index) {
    moment.release();
    check(RUNTIME(EventCreate)(&moment.event), "creating an event");
    moment.gpu = gpu_.index;
  }
  check(RUNTIME(EventRecord)(moment.event, stream_), "recording an event");
}

void VendorStream::start_recording() {
  gpu_.make_current();
  vendor::check(RUNTIME(StreamBeginCapture)(stream_, RUNTIME(StreamCaptureModeThreadLocal)),
                "starting to record");
  gpu_.broken_recording = false;
}

std::unique_ptr<Recording::Parts> VendorStream::finish_recording() {
  gpu_.make_current();
  RUNTIME(Graph_t) graph = nullptr;
  Result result = RUNTIME(StreamEndCapture)(stream_, &graph);
  const Result refused = take_refused_launch();
  if (result == RUNTIME(Success)) result = refused;
  auto kept = std::make_unique<VendorRecording>();
  if (result == RUNTIME(Success) && !gpu_.broken_recording)
    result = RUNTIME(GraphInstantiateWithFlags)(&kept->graph, graph, 0);
  ignore(result);
  if (graph != nullptr) ignore(RUNTIME(GraphDestroy)(graph));
  if (kept->graph == nullptr) return nullptr;
  return kept;
}

void VendorStream::synchronize(double deadline_seconds) {
  gpu_.make_current();
  if (is_recorded()) {
    gpu_.broken_recording = true;
    return;
  }
  const auto deadline = steady_clock::now() + std::chrono::duration<double>(deadline_seconds);
  auto pause = kFirstPause;
  Result result = RUNTIME(StreamQuery)(stream_);
  while (result == RUNTIME(ErrorNotReady)) {
    ignore(result);
    if (steady_clock::now() > deadline) {
      timed_out = true;
      throw DeviceError(DeviceError::Kind::timed_out,
                        fmt::format("{} did not respond for {:.0f} s", gpu_.name, deadline_seconds));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
    result = RUNTIME(StreamQuery)(stream_);
  }
  vendor::check(take_refused_launch(), "a kernel launch");
  vendor::check(result, "work on the GPU");
  gpu_.wait_timeout.forget(this);
}

}  // namespace

void launched(int result) {
  int none = RUNTIME(Success);
  if (result != none) refused_launch.compare_exchange_strong(none, result);
}

std::unique_ptr<Stream::Parts> vendor::make_stream(SharedParts& gpu) {
  return std::make_unique<VendorStream>(gpu);
}

}  // namespace hearth::gpu
