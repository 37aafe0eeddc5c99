#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"

namespace hearth::cost {

/// Whose kernels a model of a GPU is of; none: nothing but rates.
enum class Vendor : uint8_t { none, amd, nvidia };

/// A device as programs are modeled on it: what its libraries reach, not what is printed on the box. Rates
/// are per second. Made without arguments: a processor, whichever it is, so that plans are alike everywhere.
struct Device {
  std::string_view name = "cpu";        ///< "rx7900xt"
  std::string_view full_name = "CPU";   ///< as its driver says it
  double half_flops_per_second = 1e11;  ///< matmuls of bf16 and f16 with sums in f32
  double full_flops_per_second = 1e11;  ///< f32
  double bytes_per_second = 1e10;
  double link_bytes_per_second = 1e10;  ///< between the device and host memory, each way
  double launch_seconds = 0;            ///< from the end of a kernel to the start of the next
  /// Whether a kernel computes while it reads and writes, or does one after the other.
  bool overlaps = false;
  Vendor vendor = Vendor::none;
  int units = 0;  ///< workgroup processors or streaming multiprocessors, if it has a vendor
  /// Whether moments of a matmul are cheaper where it is made than where they are needed: on GPUs.
  bool measures_matmuls = false;
  double half_peak_flops_per_second = 0;  ///< by the vendor, dense; what MFU is a share of; 0: not known
  double full_peak_flops_per_second = 0;
  std::string_view sources = "assumed";  ///< of the figures, in their order
};

/// All GPUs that are known; a figure is changed, and a GPU added, in device.cpp.
std::span<const Device> known_gpus();
/// The GPU of that name; UserError with the known ones otherwise.
const Device& find_gpu(std::string_view name);
/// The GPU whose driver says that name; null where it is not known.
const Device* find_gpu_by_full_name(std::string_view full_name);
/// What stands for a GPU whose driver says that name: itself, or where it is not known the RTX 4090 for
/// NVIDIA's and the RX 7900 XT for all others.
const Device& nearest_gpu(std::string_view full_name);
/// The GPU that plans are for where none is used or named: an RX 7900 XT.
const Device& usual_gpu();
/// What a program of that precision is planned by on an emulated GPU: the same on every machine.
Device emulated_gpu(DType precision);

/// The vendor's arithmetic rate for a model in that precision.
double peak_flops_per_second(const Device& device, DType precision);

}  // namespace hearth::cost
