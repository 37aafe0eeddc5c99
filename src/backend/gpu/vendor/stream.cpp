#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "backend/gpu/launched.h"
#include "backend/gpu/vendor/blas.h"
#include "backend/gpu/vendor/parts.h"
#include "base/error.h"

/// Streams of HIP and CUDA. Recording is stream capture: work is added to a graph instead of being run. Work
/// that cannot be captured does not throw, but stores the reason; finish_recording() then returns null, and
/// the caller queues the work each time. synchronize() polls with a timeout, because a blocking wait for a
/// hung GPU never returns, not even one for an event with blocking synchronization.
namespace hearth::gpu {
namespace {

using namespace vendor;
using std::chrono::steady_clock;

/// Duration of busy polling, and the sleep between two polls after it.
constexpr std::chrono::microseconds kSpin{200}, kNap{50};

/// Sleeps for kNap. Linux adds 50 us to the sleeps of a thread unless its timer slack is lower.
void nap() {
  constexpr unsigned long kSlackNanoseconds = 1000;
  thread_local const int status = prctl(PR_SET_TIMERSLACK, kSlackNanoseconds);
  static_cast<void>(status);
  std::this_thread::sleep_for(kNap);
}

/// Result code of the first launch that failed since the last synchronize(); Success if none did.
std::atomic<int> refused_launch = RUNTIME(Success);

Result take_refused_launch() { return static_cast<Result>(refused_launch.exchange(RUNTIME(Success))); }

struct VendorEvent : Event::Parts {
  RUNTIME(Event_t) event = nullptr;
  int gpu = -1;
  uint64_t stream = 0;  ///< id of the stream that recorded it last

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
    int lowest = 0, highest = 0;
    if (gpu_.low_priority) ignore(RUNTIME(DeviceGetStreamPriorityRange)(&lowest, &highest));
    vendor::check(RUNTIME(StreamCreateWithPriority)(&stream_, RUNTIME(StreamNonBlocking), lowest),
                  "creating a stream");
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
    constexpr const char* kDoing = "filling memory";
    if (admits(kDoing))
      check(RUNTIME(MemsetAsync)(device, value, static_cast<size_t>(num_bytes), stream_), kDoing);
  }
  void call(void (*function)(void*), void* argument) override {
    constexpr const char* kDoing = "queuing a call on the host";
    if (admits(kDoing)) check(RUNTIME(LaunchHostFunc)(stream_, function, argument), kDoing);
  }
  void multiply(const BlasMatmul& matmul, const BlasArrays& arrays) override;
  std::vector<BlasAlgorithm> algorithms(const BlasMatmul& matmul) override {
    return blas().algorithms(matmul);
  }
  std::string algorithm_fault(const BlasMatmul& matmul) override;
  void record(std::unique_ptr<Event::Parts>& event, Event::Kind kind) override;
  void wait(const Event::Parts& event) override;
  void start_recording() override;
  std::unique_ptr<Recording::Parts> finish_recording(std::string& fault) override;
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
    if (!gpu_.is_recording) fail(result, doing);
    ignore(result);
    gpu_.break_recording(failure_text(result, doing));
  }
  /// Makes the GPU current. Returns false during a recording that this stream could not join because of an
  /// earlier failure: its work would run now, and again when the caller queues all work directly.
  bool admits(std::string_view doing) {
    gpu_.make_current();
    if (!gpu_.is_recording || is_recorded()) return true;
    gpu_.break_recording(fmt::format("{} failed: its stream does not take part in the recording", doing));
    return false;
  }
  void copy(void* to, const void* from, int64_t num_bytes, RUNTIME(MemcpyKind) kind, std::string_view doing) {
    if (admits(doing))
      check(RUNTIME(MemcpyAsync)(to, from, static_cast<size_t>(num_bytes), kind, stream_), doing);
  }

  /// Returns the BLAS library, opened by the first call, and makes the GPU current. Throws DeviceError.
  Blas& blas() {
    gpu_.make_current();
    if (!blas_) blas_ = std::make_unique<Blas>(stream_);
    return *blas_;
  }

  static inline std::atomic<uint64_t> num_streams_ = 0;

  SharedParts& gpu_;
  const uint64_t id_ = ++num_streams_;
  NativeStream stream_ = nullptr;
  std::unique_ptr<Blas> blas_;
};

void VendorStream::multiply(const BlasMatmul& matmul, const BlasArrays& arrays) {
  if (!admits("a matmul")) return;
  try {
    blas().multiply(matmul, arrays);
  } catch (const DeviceError& error) {
    if (!gpu_.is_recording) throw;
    gpu_.break_recording(error.what());
  }
}

std::string VendorStream::algorithm_fault(const BlasMatmul& matmul) {
  try {
    return blas().algorithm_fault(matmul);
  } catch (const DeviceError& error) {
    return error.what();
  }
}

void VendorStream::record(std::unique_ptr<Event::Parts>& event, Event::Kind kind) {
  constexpr const char* kDoing = "recording an event";
  if (!admits(kDoing)) return;
  if (!event) event = std::make_unique<VendorEvent>();
  auto& moment = static_cast<VendorEvent&>(*event);
  if (moment.gpu != gpu_.index) {
    moment.release();
    const unsigned flags = kind == Event::Kind::timed ? RUNTIME(EventDefault) : RUNTIME(EventDisableTiming);
    check(RUNTIME(EventCreateWithFlags)(&moment.event, flags), "creating an event");
    moment.gpu = gpu_.index;
  }
  moment.stream = id_;
  check(RUNTIME(EventRecord)(moment.event, stream_), kDoing);
}

/// Waits for an event. Does nothing if this stream, which runs in order, recorded it: HIP 5.7 refuses that.
void VendorStream::wait(const Event::Parts& event) {
  const auto& moment = static_cast<const VendorEvent&>(event);
  if (moment.stream == id_) return;
  gpu_.make_current();
  check(RUNTIME(StreamWaitEvent)(stream_, moment.event, 0), "waiting for an event");
}

void VendorStream::start_recording() {
  gpu_.make_current();
  vendor::check(RUNTIME(StreamBeginCapture)(stream_, RUNTIME(StreamCaptureModeThreadLocal)),
                "starting to record");
  gpu_.recording_fault.clear();
  gpu_.is_recording = true;
}

std::unique_ptr<Recording::Parts> VendorStream::finish_recording(std::string& fault) {
  gpu_.make_current();
  gpu_.is_recording = false;
  const auto note = [&](Result result, std::string_view doing) {
    if (result == RUNTIME(Success)) return;
    ignore(result);
    gpu_.break_recording(failure_text(result, doing));
  };
  note(take_refused_launch(), "a kernel launch");
  RUNTIME(Graph_t) graph = nullptr;
  note(RUNTIME(StreamEndCapture)(stream_, &graph), "finishing a recording");
  auto kept = std::make_unique<VendorRecording>();
  if (gpu_.recording_fault.empty())
    note(RUNTIME(GraphInstantiateWithFlags)(&kept->graph, graph, 0), "preparing a recording");
  if (graph != nullptr) ignore(RUNTIME(GraphDestroy)(graph));
  fault = gpu_.recording_fault;
  if (!fault.empty()) return nullptr;
  return kept;
}

void VendorStream::synchronize(double deadline_seconds) {
  gpu_.make_current();
  if (is_recorded()) return gpu_.break_recording("the host waited for a stream that was recorded");
  const auto start = steady_clock::now();
  Result result = RUNTIME(StreamQuery)(stream_);
  while (result == RUNTIME(ErrorNotReady)) {
    ignore(result);
    const auto waited = steady_clock::now() - start;
    if (waited > std::chrono::duration<double>(deadline_seconds)) {
      timed_out = true;
      throw DeviceError(DeviceError::Kind::timed_out,
                        fmt::format("{} did not respond for {:.0f} s", gpu_.name, deadline_seconds));
    }
    if (waited < kSpin) {
      std::this_thread::yield();
    } else {
      nap();
    }
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
