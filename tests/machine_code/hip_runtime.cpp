// A stand-in for libamdhip64: GPUs whose kernels machine.h executes, for a HIP build that knows nothing of
// it. Whatever is queued is done at once; streams and events keep what recordings (graphs) need.
//   MACHINE_CODE_TARGET=gfx1100               which code objects of the program are loaded
//   MACHINE_CODE_GPUS=1                       how many such GPUs there are
//   MACHINE_CODE_ORDER=forward|reverse|SEED   of blocks and waves
//   MACHINE_CODE_POISON=7fbadbad              what registers, shared memory and allocations hold at first
//   MACHINE_CODE_REPORT=FILE                  kernels of the program and what each executed (counters.h)
//   MACHINE_CODE_COVERAGE=FILE                which instructions of each kernel ran, and which the emulator
//   cannot execute (coverage reads it)
//   MACHINE_CODE_BLOCKS=0                     of a launch that run, spread over it, to count those of large
//   ones (24 GiB of memory without poison, no races between blocks); 0: all
//   MACHINE_CODE_RECORDING=refuse|hang|late   recordings (graphs) end in an error, never end, or lose their
//   last work from the second replay on
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

// After the standard library, whose attributes its macros would break.
#define __HIP_PLATFORM_AMD__  // NOLINT(bugprone-reserved-identifier): HIP asks for it.
#include <hip/hip_runtime_api.h>

#include "capture.h"
#include "machine.h"

namespace {

using namespace machine_code;

constexpr size_t kGap = 4096;
/// Launches of which only some blocks run leave most memory untouched, and so it costs none.
size_t memory_bytes() { return size_t{settings().max_blocks == 0 ? 4u : 24u} << 30; }

using capture::Stream;
struct Event : capture::Event {
  std::chrono::steady_clock::time_point time;
};
struct Graph {
  std::shared_ptr<capture::Recording> recording;
  int replays = 0;
};
struct Program {
  std::unique_ptr<CodeObject> object;
};
struct Kept {
  std::vector<std::byte> bytes;
  std::byte* begin = nullptr;
};

std::string setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

/// Never destroyed: kernels are unregistered after main.
struct State {
  std::mutex mutex;
  std::string target = setting("MACHINE_CODE_TARGET", "gfx1100");
  int gpus = std::atoi(setting("MACHINE_CODE_GPUS", "1").c_str());
  std::map<void*, size_t> memory;
  size_t used = 0;
  std::vector<std::unique_ptr<Program>> programs;
  std::unordered_map<const void*, std::pair<Program*, std::string>> functions;
  hipError_t last = hipSuccess, lost = hipSuccess;
  std::string fault;

  State() {
    const std::string order = setting("MACHINE_CODE_ORDER", "forward");
    Settings& set = settings();
    set.poison = static_cast<uint32_t>(std::stoul(setting("MACHINE_CODE_POISON", "7fbadbad"), nullptr, 16));
    if (order == "reverse")
      set.order = Settings::Order::reverse;
    else if (order != "forward")
      set.order = Settings::Order::random, set.seed = std::stoull(order);
    set.counts = setting("MACHINE_CODE_REPORT", "") != "";
    set.max_blocks = std::stoull(setting("MACHINE_CODE_BLOCKS", "0"));
    counts();
    std::atexit([] { state().report(); });
  }
  static State& state() {
    static auto* all = new State;
    return *all;
  }
  /// A line for each kernel: its instructions and its name; after it what it counted.
  void report() const {
    write("MACHINE_CODE_REPORT", [](FILE* file, const std::string& name, const Kernel&) {
      const auto ran = counts().by_kernel.find(name);
      std::fprintf(file, "kernel %llu %s\n",
                   ran == counts().by_kernel.end() ? 0ULL : static_cast<unsigned long long>(ran->second),
                   name.c_str());
      const auto counters = counts().counters.find(name);
      if (counters != counts().counters.end()) print(counters->second, file);
    });
    write("MACHINE_CODE_COVERAGE", [](FILE* file, const std::string& name, const Kernel& kernel) {
      const Listing all = kernel.object->listing(kernel);
      std::fprintf(file, "executed %s %s\n", name.c_str(), all.executed.c_str());
      for (const std::string& what : all.unknown)
        std::fprintf(file, "unknown %s %s\n", name.c_str(), what.c_str());
    });
  }

 private:
  /// Adds a line of each kernel to the file that an environment variable names.
  template <typename F>
  void write(const char* variable, F line) const {
    const std::string path = setting(variable, "");
    FILE* file = path.empty() ? nullptr : std::fopen(path.c_str(), "a");
    if (file == nullptr) return;
    for (const auto& program : programs) {
      if (!program->object) continue;
      for (const auto& [name, kernel] : program->object->kernels()) line(file, name, kernel);
    }
    std::fclose(file);
  }
};
State& state() { return State::state(); }

hipError_t answer(hipError_t error) {
  if (error != hipSuccess) state().last = error;
  return error;
}
Stream& of(hipStream_t stream) {
  static Stream none;
  if (stream == nullptr) return none;
  return *reinterpret_cast<Stream*>(stream);
}
bool recordings(const char* fail) {
  static const std::string set = setting("MACHINE_CODE_RECORDING", "");
  return set == fail;
}

/// Now, or whenever the recording is replayed. A fault loses the GPU, as it would lose a real one's context.
template <typename F>
hipError_t perform(hipStream_t stream, F f) {
  if (of(stream).records()) {
    of(stream).recording->add(&of(stream), f);
    return hipSuccess;
  }
  if (state().lost != hipSuccess) return answer(state().lost);
  try {
    f();
  } catch (const Fault& fault) {
    std::fprintf(stderr, "machine code: %s\n", fault.what.c_str());
    state().fault = fault.what;
    state().lost = hipErrorIllegalAddress;
    return answer(hipErrorIllegalAddress);
  }
  return hipSuccess;
}

struct Configuration {
  dim3 grid, block;
  size_t shared = 0;
  hipStream_t stream = nullptr;
};
thread_local std::vector<Configuration> configurations;

/// The code objects of an offload bundle (clang's "Offload Bundler" document): entries of offset, bytes and
/// target.
void load_bundle(Program& program, const std::byte* bundle) {
  if (std::memcmp(bundle, "__CLANG_OFFLOAD_BUNDLE__", 24) != 0)
    throw Fault{"a bundle of another kind, compressed perhaps"};
  auto number = [&](size_t at) {
    uint64_t value;
    std::memcpy(&value, bundle + at, sizeof value);
    return value;
  };
  size_t at = 32;
  for (uint64_t i = 0; i < number(24); ++i) {
    const uint64_t offset = number(at), bytes = number(at + 8), length = number(at + 16);
    const std::string target(reinterpret_cast<const char*>(bundle + at + 24), length);
    at += 24 + length;
    if (target.find(state().target) != target.npos)
      program.object = std::make_unique<CodeObject>(bundle + offset, bytes);
  }
}

bool fits(const Kernel& kernel, dim3 grid, dim3 block, size_t shared) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  constexpr uint64_t kMostThreads = 1024, kMostShared = 65536, kMostBlocks = 65535;
  return threads > 0 && threads <= kMostThreads && grid.x > 0 && grid.y > 0 && grid.z > 0 &&
         uint64_t{grid.x} * block.x <= 0xffffffff && grid.y <= kMostBlocks && grid.z <= kMostBlocks &&
         kernel.lds_bytes + shared <= kMostShared;
}

void* allocated(size_t bytes) {
  const size_t whole = (bytes + 2 * kGap + kGap - 1) / kGap * kGap;
  auto* made = static_cast<std::byte*>(std::aligned_alloc(kGap, whole));
  if (made == nullptr) return nullptr;
  const uint32_t poison = settings().poison;
  for (size_t i = kGap; settings().max_blocks == 0 && i + sizeof poison <= whole; i += sizeof poison)
    std::memcpy(made + i, &poison, sizeof poison);
  allow(reinterpret_cast<uint64_t>(made + kGap), bytes);
  return made + kGap;
}
void released(void* memory) {
  forbid(reinterpret_cast<uint64_t>(memory));
  std::free(static_cast<std::byte*>(memory) - kGap);
}

}  // namespace

extern "C" {

void** __hipRegisterFatBinary(const void* wrapper) {
  State& all = state();
  Program& program = *all.programs.emplace_back(std::make_unique<Program>());
  const std::byte* bundle = nullptr;
  std::memcpy(&bundle, static_cast<const std::byte*>(wrapper) + 8, sizeof bundle);
  try {
    load_bundle(program, bundle);
  } catch (const Fault& fault) {
    std::fprintf(stderr, "machine code: %s\n", fault.what.c_str());
  }
  return reinterpret_cast<void**>(&program);
}
void __hipUnregisterFatBinary(void**) {}
void __hipRegisterFunction(void** program, const void* host, char*, const char* name, unsigned, void*, void*,
                           void*, void*, int*) {
  state().functions[host] = {reinterpret_cast<Program*>(program), name};
}
void __hipRegisterVar(void**, void*, char*, char* name, int, size_t, int, int) {
  std::fprintf(stderr, "machine code: variables of the GPU are not supported: %s\n", name);
}
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return hipSuccess;
}
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream) {
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid, *block = last.block, *shared = last.shared, *stream = last.stream;
  return hipSuccess;
}

hipError_t hipLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                           hipStream_t stream) {
  const auto found = state().functions.find(function);
  if (found == state().functions.end() || !found->second.first->object)
    return answer(hipErrorInvalidDeviceFunction);
  const auto& kernels = found->second.first->object->kernels();
  const auto kernel = kernels.find(found->second.second);
  if (kernel == kernels.end()) return answer(hipErrorInvalidDeviceFunction);
  const Kernel& k = kernel->second;
  if (!fits(k, grid, block, shared)) return answer(hipErrorInvalidConfiguration);
  std::vector<std::vector<std::byte>> values;
  for (const Argument& argument : k.arguments) {
    if (argument.kind.starts_with("hidden_")) continue;
    const auto* from = static_cast<const std::byte*>(*arguments++);
    values.emplace_back(from, from + argument.size);
  }
  return perform(stream, [&k, grid, block, values, shared]() mutable {
    std::vector<void*> pointers;
    for (auto& value : values) pointers.push_back(value.data());
    launch(k, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, pointers.data(), shared);
  });
}

hipError_t hipGetDeviceCount(int* count) {
  *count = state().gpus;
  return hipSuccess;
}
hipError_t hipSetDevice(int) { return hipSuccess; }
hipError_t hipDriverGetVersion(int* version) {
  *version = HIP_VERSION;
  return hipSuccess;
}
hipError_t hipRuntimeGetVersion(int* version) { return hipDriverGetVersion(version); }
hipError_t hipDeviceGetPCIBusId(char* address, int length, int device) {
  std::snprintf(address, static_cast<size_t>(length), "ffff:%02x:00.0", device);
  return hipSuccess;
}
hipError_t hipDeviceGetName(char* name, int length, hipDevice_t) {
  std::snprintf(name, static_cast<size_t>(length), "machine code of %s", state().target.c_str());
  return hipSuccess;
}
hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t) {
  *bytes = memory_bytes();
  return hipSuccess;
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t which, int) {
  *value = which == hipDeviceAttributeMultiprocessorCount ? 4
           : which == hipDeviceAttributeIntegrated        ? 0
                                                          : 65536;
  return hipSuccess;
}
hipError_t hipGetDeviceProperties(hipDeviceProp_t* gpu, int device) {
  std::memset(gpu, 0, sizeof *gpu);
  static_cast<void>(hipDeviceGetName(gpu->name, sizeof gpu->name, device));
  std::snprintf(gpu->gcnArchName, sizeof gpu->gcnArchName, "%s", state().target.c_str());
  gpu->totalGlobalMem = memory_bytes();
  gpu->sharedMemPerBlock = 65536;
  gpu->multiProcessorCount = 4;
  gpu->warpSize = 32;
  gpu->maxThreadsPerBlock = 1024;
  return hipSuccess;
}
hipError_t hipMemGetInfo(size_t* free, size_t* total) {
  *total = memory_bytes();
  *free = memory_bytes() - state().used;
  return hipSuccess;
}

hipError_t hipMalloc(void** memory, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (state().used + bytes > memory_bytes() || (*memory = allocated(bytes)) == nullptr)
    return answer(hipErrorOutOfMemory);
  state().memory[*memory] = bytes;
  state().used += bytes;
  return hipSuccess;
}
hipError_t hipFree(void* memory) {
  const std::lock_guard lock(state().mutex);
  if (memory == nullptr) return hipSuccess;
  const auto at = state().memory.find(memory);
  if (at == state().memory.end()) return answer(hipErrorInvalidValue);
  state().used -= at->second;
  state().memory.erase(at);
  released(memory);
  return hipSuccess;
}
hipError_t hipHostMalloc(void** memory, size_t bytes, unsigned) {
  const std::lock_guard lock(state().mutex);
  *memory = allocated(bytes);
  return *memory == nullptr ? answer(hipErrorOutOfMemory) : hipSuccess;
}
hipError_t hipHostFree(void* memory) {
  const std::lock_guard lock(state().mutex);
  if (memory != nullptr) released(memory);
  return hipSuccess;
}

hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind, hipStream_t stream) {
  return perform(stream, [=] { std::memmove(to, from, bytes); });
}
hipError_t hipMemsetAsync(void* to, int value, size_t bytes, hipStream_t stream) {
  return perform(stream, [=] { std::memset(to, value, bytes); });
}
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* argument) {
  return perform(stream, [=] { function(argument); });
}

hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 1, *greatest = -1;
  return hipSuccess;
}
hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned, int) {
  *stream = reinterpret_cast<hipStream_t>(new Stream);
  return hipSuccess;
}
hipError_t hipStreamDestroy(hipStream_t stream) {
  delete reinterpret_cast<Stream*>(stream);
  return hipSuccess;
}
hipError_t hipStreamQuery(hipStream_t) { return state().lost; }
hipError_t hipStreamSynchronize(hipStream_t) { return state().lost; }
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  *status = of(stream).records() ? hipStreamCaptureStatusActive : hipStreamCaptureStatusNone;
  return hipSuccess;
}
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode) {
  of(stream).recording = std::make_shared<capture::Recording>();
  return hipSuccess;
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  const std::shared_ptr<capture::Recording> recording = of(stream).recording;
  if (!recording) return answer(hipErrorIllegalState);
  while (recordings("hang")) pause();
  recording->ended = true;
  if (recordings("refuse") || !recording->is_joined(&of(stream)))
    return answer(hipErrorStreamCaptureUnjoined);
  *graph = reinterpret_cast<hipGraph_t>(new Graph{recording});
  return hipSuccess;
}
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned) {
  return capture::wait(of(stream), *reinterpret_cast<Event*>(event)) ? hipSuccess
                                                                     : answer(hipErrorInvalidValue);
}
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) {
  *event = reinterpret_cast<hipEvent_t>(new Event);
  return hipSuccess;
}
hipError_t hipEventDestroy(hipEvent_t event) {
  delete reinterpret_cast<Event*>(event);
  return hipSuccess;
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  auto* e = reinterpret_cast<Event*>(event);
  e->record(of(stream));
  e->time = std::chrono::steady_clock::now();
  return hipSuccess;
}
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t from, hipEvent_t to) {
  const auto passed = reinterpret_cast<Event*>(to)->time - reinterpret_cast<Event*>(from)->time;
  *milliseconds = std::chrono::duration<float, std::milli>(passed).count();
  return hipSuccess;
}
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* made, hipGraph_t graph, unsigned long long) {
  *made = reinterpret_cast<hipGraphExec_t>(new Graph{reinterpret_cast<Graph*>(graph)->recording});
  return hipSuccess;
}
hipError_t hipGraphDestroy(hipGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return hipSuccess;
}
hipError_t hipGraphExecDestroy(hipGraphExec_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return hipSuccess;
}
hipError_t hipGraphLaunch(hipGraphExec_t graph, hipStream_t stream) {
  auto* all = reinterpret_cast<Graph*>(graph);
  constexpr int kRight = 1;
  const size_t lost = recordings("late") && all->replays++ >= kRight ? 1 : 0;
  return perform(stream, [recording = all->recording, lost] {
    for (size_t i = 0; i + lost < recording->steps.size(); ++i) recording->steps[i]();
  });
}

/// For tests: what the last fault was, which this forgets, as if the GPU had been reset.
const char* machineCodeFault() {
  static std::string text;
  text = std::exchange(state().fault, "");
  state().lost = state().last = hipSuccess;
  return text.c_str();
}
/// For tests: the order of blocks and waves from here on, 0: forward, and the poison.
void machineCodeOrder(uint64_t seed, uint32_t poison) {
  settings().order = seed == 0 ? Settings::Order::forward : Settings::Order::random;
  settings().seed = seed;
  settings().poison = poison;
}

/// For tests: what the kernels whose names have this part take from here on, as print() writes it; the second
/// call answers.
const char* machineCodeCounted(const char* part) {
  static std::string text;
  text.clear();
  settings().counts = true;
  for (const auto& [name, counters] : counts().counters) {
    if (name.find(part) == name.npos) continue;
    char* line = nullptr;
    size_t bytes = 0;
    std::FILE* file = open_memstream(&line, &bytes);
    print(counters, file);
    std::fclose(file);
    text += line;
    std::free(line);
  }
  counts().counters.clear();
  return text.c_str();
}

hipError_t hipGetLastError() { return std::exchange(state().last, hipSuccess); }
const char* hipGetErrorName(hipError_t error) {
  static thread_local char text[32];
  std::snprintf(text, sizeof text, "hipError%d", static_cast<int>(error));
  return text;
}
const char* hipGetErrorString(hipError_t error) {
  if (error == hipErrorIllegalAddress) return "a kernel did what the standard error output says";
  return error == hipSuccess ? "no error" : hipGetErrorName(error);
}

}  // extern "C"
