#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "backend/gpu/modules.h"
#include "ir/graph.h"
#if defined(HEARTH_GPU_EMULATED)
#include "backend/gpu/emu/grid.h"
#include "backend/gpu/emu/stream.h"
#endif

namespace hearth::gpu {

/// Why tests of kernels skip in a build for GPUs.
inline constexpr const char* kNoGpu = "SKIPPED: kernels on a GPU: there is none here";

/// What the tests are about: emulated GPUs, or those of this machine.
inline std::vector<DeviceInfo> tested_devices() {
#if defined(HEARTH_GPU_EMULATED)
  return emulator().list_devices();
#else
  return list_devices();
#endif
}

/// Whether the tests were told that there is a GPU.
inline bool expects_gpu() {
  const char* const told = std::getenv("HEARTH_EXPECT_GPU");
  return told != nullptr && std::string_view(told) == "1";
}

/// Ends a test where there is no GPU: skipped, or failed where one is expected.
#define HEARTH_NEED_GPU()                                                                   \
  if (!gpu::tested_devices().empty()) {                                                     \
  } else if (gpu::expects_gpu())                                                            \
    FAIL() << "expected a GPU, because HEARTH_EXPECT_GPU=1, got none; try ./hearth doctor"; \
  else                                                                                      \
    GTEST_SKIP() << gpu::kNoGpu

/// The first GPU, a stream, and arrays on it.
class Gpu {
 public:
  Gpu() = default;
  ~Gpu() {
    for (std::byte* memory : memory_) device_.release(memory);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  template <typename T>
  T* put(const std::vector<T>& values) {
    T* made = room<T>(values.size());
    stream_.copy_in(reinterpret_cast<std::byte*>(made), values.data(), bytes_of<T>(values.size()));
    stream_.synchronize();
    return made;
  }
  template <typename T>
  T* room(size_t count) {
    memory_.push_back(device_.allocate(bytes_of<T>(count)));
    return reinterpret_cast<T*>(memory_.back());
  }
  template <typename T>
  std::vector<T> get(const T* from, size_t count) {
    std::vector<T> made(count);
    stream_.copy_out(made.data(), reinterpret_cast<const std::byte*>(from), bytes_of<T>(count));
    stream_.synchronize();
    return made;
  }
  Device& device() { return device_; }
  Runtime runtime() const { return device_.info().driver->runtime(); }
  const ir::GpuKernel* find_kernel(const ir::OpDef& op) const {
    return device_.info().driver->find_kernel(op.name);
  }
  ir::Kernel kernel(const ir::OpDef& op, const ir::NodeView& node) const {
    return device_.info().driver->kernel(op.name, node);
  }
  /// Of a graph's node.
  ir::Kernel kernel(const ir::Graph& graph, const ir::Node& node) const {
    const ir::NodeTypes types(graph, node);
    return kernel(*node.op, types.view(node));
  }
  Stream& stream() { return stream_; }
  void* handle() { return stream_.handle(); }

 private:
  template <typename T>
  static int64_t bytes_of(size_t count) {
    return static_cast<int64_t>(count * sizeof(T));
  }

  Device device_{tested_devices().at(0)};
  Stream stream_{device_};
  std::vector<std::byte*> memory_;
};

/// Runs the body once for each order that the threads of an emulated GPU may run in; as often on a real one,
/// which has orders of its own.
template <typename Body>
void in_every_order(Body body) {
#if defined(HEARTH_GPU_EMULATED)
  for (const emu::Order order : {emu::Order::forward, emu::Order::reverse, emu::Order::random}) {
    SCOPED_TRACE(static_cast<int>(order));
    emu::settings().order = order;
    body();
  }
  emu::settings() = {};
#else
  for (int i = 0; i < 3; ++i) body();
#endif
}

/// With a library of matmuls: the vendor's, or an emulated one.
class LibraryTest : public testing::Test {
 protected:
#if defined(HEARTH_GPU_EMULATED)
  LibraryTest() {
    emu::gpus() = {{.library = emu::GpuSettings::Library::right, .algorithm_threads = { 1, 1 } }};
  }
  ~LibraryTest() override {
    emu::gpus() = {{}};
  }
#else
  void SetUp() override {
    HEARTH_NEED_GPU();
    if (tested_devices()[0].driver->runtime().library.empty())
      GTEST_SKIP() << "SKIPPED: the vendor's matmuls: its library is not here";
  }
#endif
};

#if defined(HEARTH_GPU_EMULATED)
/// Settings of the emulator for one test.
class EmulatorTest : public testing::Test {
 protected:
  ~EmulatorTest() override { emu::settings() = {}; }

  template <typename Body>
  static void in_every_order(Body body) {
    gpu::in_every_order(body);
  }
};
#endif

}  // namespace hearth::gpu
