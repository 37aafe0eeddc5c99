#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/choices.h"

namespace hearth::cost {

/// Vendor of a GPU, which selects the kernel efficiencies in kernel_share.cpp. none: kernels reach the full
/// rate.
enum class Vendor : uint8_t { none, amd, nvidia };

/// Performance model of a device. The rates (per second) are those that libraries reach in practice, not peak
/// rates. The default values describe a generic CPU, the same on every machine, so that plans are
/// reproducible.
struct Device {
  std::string_view name = "cpu";        ///< name in recipes and on the command line: "rx7900xt"
  std::string_view full_name = "CPU";   ///< name reported by its driver
  double half_flops_per_second = 1e11;  ///< rate of bf16 and f16 matmuls with f32 accumulation
  double full_flops_per_second = 1e11;  ///< rate of f32 matmuls
  double bytes_per_second = 1e10;
  int64_t memory_bytes = 0;             ///< size of the device's memory; 0: unknown
  double link_bytes_per_second = 1e10;  ///< rate of copies between device and host memory, per direction
  double launch_seconds = 0;            ///< time between the end of a kernel and the start of the next
  /// True if a kernel overlaps computing with memory traffic; otherwise their times add up.
  bool overlaps = false;
  Vendor vendor = Vendor::none;
  /// Number of compute units (AMD: workgroup processors, NVIDIA: streaming multiprocessors); unused without a
  /// vendor.
  int units = 0;
  /// True for GPUs: launches cost time, and batch statistics are cheaper to compute inside the matmul that
  /// produces the normalized values than in a separate kernel.
  bool is_gpu = false;
  double half_peak_flops_per_second = 0;  ///< vendor's dense peak rate, the denominator of MFU; 0: unknown
  double full_peak_flops_per_second = 0;
  double fp8_peak_flops_per_second = 0;  ///< peak of E4M3 matmuls; 0: no matrix instructions for E4M3
  std::string_view sources = "assumed";  ///< where the numbers come from, in the order of the members
};

/// Returns the table of GPUs. To add a GPU or change a number, edit the table in device.cpp.
std::span<const Device> known_gpus();
/// Returns the GPU with that name; UserError with the known names if there is none.
const Device& find_gpu(std::string_view name);
/// Returns the GPU whose driver reports that name; null if unknown.
const Device* find_gpu_by_driver_name(std::string_view full_name);
/// Returns the GPU whose driver reports that name; if unknown, the RTX 4090 for an NVIDIA name and the RX
/// 7900 XT for all others.
const Device& nearest_gpu(std::string_view full_name);
/// Returns the GPU that plans assume if the machine has none and none is requested: an RX 7900 XT.
const Device& default_gpu();
/// Returns the device model that plans for an emulated GPU use. It is the same on every machine.
Device emulated_gpu(DType precision);

/// Returns the vendor's peak arithmetic rate for a model in that precision.
double peak_flops_per_second(const Device& device, DType precision);
/// Returns the vendor's peak rate of matmuls in a matmul precision: of E4M3 if the GPU has matrix
/// instructions for it, otherwise of `precision`.
double peak_flops_per_second(const Device& device, DType precision, MatmulPrecision matmul_precision);
/// Returns " of the FP8 peak" if the function above returns the rate of E4M3, otherwise "".
std::string_view peak_note(const Device& device, MatmulPrecision matmul_precision);

}  // namespace hearth::cost
