#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"

namespace hearth::cost {

/// Vendor whose kernels a device model describes; none: rates only.
enum class Vendor : uint8_t { none, amd, nvidia };

/// Performance model of a device, with rates (per second) that its libraries reach rather than peak rates.
/// The default is a generic CPU, the same on every machine, so that plans are reproducible.
struct Device {
  std::string_view name = "cpu";        ///< "rx7900xt"
  std::string_view full_name = "CPU";   ///< name reported by its driver
  double half_flops_per_second = 1e11;  ///< bf16 and f16 matmuls with f32 accumulation
  double full_flops_per_second = 1e11;  ///< f32 matmuls
  double bytes_per_second = 1e10;
  double link_bytes_per_second = 1e10;  ///< between device and host memory, per direction
  double launch_seconds = 0;            ///< gap between two consecutive kernels
  /// True if a kernel overlaps computing with memory traffic; otherwise their times add up.
  bool overlaps = false;
  Vendor vendor = Vendor::none;
  /// compute units (AMD: workgroup processors, NVIDIA: streaming multiprocessors); only with a vendor
  int units = 0;
  /// True if batch statistics are cheaper to compute in the matmul that produces their input than in a
  /// separate kernel: on GPUs.
  bool measures_matmuls = false;
  double half_peak_flops_per_second = 0;  ///< vendor's dense peak rate, the denominator of MFU; 0: unknown
  double full_peak_flops_per_second = 0;
  std::string_view sources = "assumed";  ///< sources of the numbers, in the order of the members
};

/// Returns all GPUs in the table of device.cpp, where a number is changed or a GPU is added.
std::span<const Device> known_gpus();
/// Returns the GPU with that name; UserError with the known names if there is none.
const Device& find_gpu(std::string_view name);
/// Returns the GPU whose driver reports that name; null if unknown.
const Device* find_gpu_by_driver_name(std::string_view full_name);
/// Returns the GPU whose driver reports that name; if unknown, the RTX 4090 for an NVIDIA name and the RX
/// 7900 XT for all others.
const Device& nearest_gpu(std::string_view full_name);
/// Returns the GPU assumed by plans if none is used or named: an RX 7900 XT.
const Device& default_gpu();
/// Returns the model used for plans on an emulated GPU: the same on every machine.
Device emulated_gpu(DType precision);

/// Returns the vendor's peak arithmetic rate for a model in that precision.
double peak_flops_per_second(const Device& device, DType precision);

}  // namespace hearth::cost
