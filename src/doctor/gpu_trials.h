#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "backend/gpu/device.h"

/// What hearth doctor --deep does on a GPU. Everything throws gpu::DeviceError as the GPU does.
namespace hearth::doctor {

/// Tries the kernels of all ops on their samples, at most so many; returns how many, and what was wrong by
/// kernel.
struct KernelTrials {
  int num_tried = 0;
  std::map<std::string, std::string> failures;
};
KernelTrials try_kernels(const gpu::DeviceInfo& gpu, int most);

/// Writes patterns to all free memory, at most so many bytes, and reads them back: the address of each word
/// and its complement, so that no two places may be one, then bits that alternate. Ends after `seconds`.
struct MemoryTrial {
  int64_t num_bytes = 0;  ///< that were tested at least once
  int num_patterns = 0;   ///< that were written to all of them
  int64_t num_wrong_words = 0;
  std::string first_wrong;  ///< "offset 0x1000: wrote 0x..., read 0x..."
};
MemoryTrial try_memory(const gpu::DeviceInfo& gpu, int64_t most_bytes, double seconds);

/// Bytes a second from page-locked host memory to the GPU and back.
struct CopyRates {
  double to_gpu = 0, to_host = 0;
};
CopyRates measure_copies(const gpu::DeviceInfo& gpu);
/// Bytes a second that the GPU writes to its own memory.
double measure_fill(const gpu::DeviceInfo& gpu);

/// Lets `size` GPUs of `device` upload, sum over the host's memory, and download numbers that are known;
/// what was wrong, or nothing. Forks: this process has opened no GPU.
std::string try_sums(const std::string& device, int size);

}  // namespace hearth::doctor
