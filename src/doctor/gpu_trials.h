#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "backend/gpu/device.h"

/// GPU tests of `hearth doctor --deep`. All functions throw gpu::DeviceError if the GPU fails.
namespace hearth::doctor {

/// Result of testing kernels: the number tested, and for each wrong kernel the reason.
struct KernelTestResult {
  int num_tested = 0;
  std::map<std::string, std::string> failures;
};
/// Tests the kernels of all ops on the ops' samples; at most `max_kernels` samples.
KernelTestResult run_kernel_tests(const gpu::DeviceInfo& gpu, int max_kernels);

/// Result of the memory test.
struct MemoryTestResult {
  int64_t num_bytes = 0;  ///< number of bytes that every pattern was written to
  int num_patterns = 0;   ///< number of patterns written and verified
  int64_t num_wrong_words = 0;
  std::string first_wrong;  ///< "offset 0x1000: wrote 0x..., read 0x..."
};
/// Tests the free memory, at most `max_bytes`, by writing patterns and reading them back. The address of each
/// word and its complement detect aliased addresses; alternating bits follow. Ends after about `seconds`.
MemoryTestResult run_memory_test(const gpu::DeviceInfo& gpu, int64_t max_bytes, double seconds);

/// Rates in bytes/s of copies from page-locked host memory to the GPU and back.
struct CopyRates {
  double to_gpu = 0, to_host = 0;
};
CopyRates measure_copies(const gpu::DeviceInfo& gpu);
/// Measures the rate at which the GPU writes to its memory, in bytes/s.
double measure_fill(const gpu::DeviceInfo& gpu);

/// Tests an all-reduce over host memory between `size` GPUs of `device` on known numbers. Returns a
/// description of the failure, or an empty string. Forks, so this process must not have opened a GPU.
std::string test_all_reduce(const std::string& device, int size);

}  // namespace hearth::doctor
