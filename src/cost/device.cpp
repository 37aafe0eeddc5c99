#include "cost/device.h"

#include <algorithm>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"

namespace hearth::cost {

namespace {

/// Rate of the link between GPU and host memory, in bytes/s per direction: PCIe 4.0 x16 with both directions
/// busy, as measured on an RX 7900 XTX (ROCm issue 2253).
constexpr double kLink = 24e9;
/// Launch overhead in seconds: a typical value, because none is published for these GPUs.
constexpr double kLaunch = 5e-6;
constexpr int64_t kGiB = int64_t{1} << 30;

/// Fills in the properties that all GPUs have in common.
constexpr Device gpu(Device device) {
  device.link_bytes_per_second = kLink;
  device.launch_seconds = kLaunch;
  device.overlaps = device.is_gpu = true;
  return device;
}

/// Fractions of the peaks that matmuls reach, the sources of the numbers, and the ratio of the vendor's peaks
/// of E4M3 and 16-bit matmuls (0: no matrix instructions for E4M3).
struct ReachedRates {
  double half, full;
  double fp8_ratio = 0;
  std::string_view source;
};
constexpr ReachedRates kRdna2{
    .half = 0.6,
    .full = 0.6,
    .source = "rates: 60% of the peaks, assumed; bandwidth: 85% of AMD's, assumed; peaks: AMD"};
constexpr ReachedRates kRdna3{
    .half = 0.73,
    .full = 0.41,
    .source =
        "rates: the shares of the peaks that an RX 7900 XTX reaches (ROCm issue 5725); "
        "bandwidth: 85% of AMD's, assumed; peaks: AMD"};
constexpr ReachedRates kRdna4{
    .half = 0.59,
    .full = 0.41,
    .fp8_ratio = 2,
    .source =
        "16 bits: the share of the peak that an RX 9070 XT reaches (115 TFLOP/s, "
        "rocm-libraries issue 10861); f32: as an RX 7900 XTX; bandwidth: 85% of AMD's, assumed; peaks: AMD"};
constexpr ReachedRates kNvidia{
    .half = 0.8,
    .full = 0.75,
    .source = "rates: 80 and 75% of the peaks, assumed; bandwidth: 85% of NVIDIA's, assumed; peaks: NVIDIA"};

/// GPUs from Ada (compute capability 8.9) on.
constexpr ReachedRates kNvidiaFp8{
    .half = kNvidia.half, .full = kNvidia.full, .fp8_ratio = 2, .source = kNvidia.source};

/// Specifications of a GPU by its vendor: peaks in TFLOP/s (dense), memory in GB/s and GiB.
struct Specs {
  std::string_view name, full_name;
  Vendor vendor;
  int units;
  double half_peak, full_peak, bandwidth;
  int64_t memory;
  ReachedRates shares;
};
/// Returns the model of a GPU that nobody has measured for this table. Bandwidth: 85% of the vendor's.
constexpr Device specified(const Specs& specs) {
  return gpu({.name = specs.name,
              .full_name = specs.full_name,
              .half_flops_per_second = specs.shares.half * specs.half_peak * 1e12,
              .full_flops_per_second = specs.shares.full * specs.full_peak * 1e12,
              .bytes_per_second = 0.85 * specs.bandwidth * 1e9,
              .memory_bytes = specs.memory * kGiB,
              .vendor = specs.vendor,
              .units = specs.units,
              .half_peak_flops_per_second = specs.half_peak * 1e12,
              .full_peak_flops_per_second = specs.full_peak * 1e12,
              .fp8_peak_flops_per_second = specs.shares.fp8_ratio * specs.half_peak * 1e12,
              .sources = specs.shares.source});
}

constexpr Device kGpus[] = {
    gpu({.name = "rx7900xt",
         .full_name = "AMD Radeon RX 7900 XT",
         .half_flops_per_second = 75e12,
         .full_flops_per_second = 20e12,
         .bytes_per_second = 680e9,
         .memory_bytes = 20 * kGiB,
         .vendor = Vendor::amd,
         .units = 42,
         .half_peak_flops_per_second = 103e12,
         .full_peak_flops_per_second = 51.5e12,
         .sources =
             "16 bits: 73% of the peak, as an RX 7900 XTX (72 to 79%, ROCm issue 5725); f32: an XTX's 23 to "
             "26 TFLOP/s (the same) by the ratio of the peaks; bandwidth: 85% of AMD's 800 GB/s, assumed; "
             "link: ROCm issue 2253; launch: assumed; peaks: AMD"}),
    gpu({.name = "rx7900xtx",
         .full_name = "AMD Radeon RX 7900 XTX",
         .half_flops_per_second = 91e12,
         .full_flops_per_second = 25e12,
         .bytes_per_second = 816e9,
         .memory_bytes = 24 * kGiB,
         .vendor = Vendor::amd,
         .units = 48,
         .half_peak_flops_per_second = 122.8e12,
         .full_peak_flops_per_second = 61.4e12,
         .sources =
             "16 bits and f32: PyTorch 2.9 and 2.10 matmuls of 4096 and more (ROCm issue 5725, "
             "zzc0721/torch-performance-test-data issues 68 and 103); bandwidth: 85% of AMD's 960 GB/s, "
             "assumed; link: ROCm issue 2253; launch: assumed; peaks: AMD"}),
    gpu({.name = "rtx4090",
         .full_name = "NVIDIA GeForce RTX 4090",
         .half_flops_per_second = 155.8e12,
         .full_flops_per_second = 62e12,
         .bytes_per_second = 857e9,
         .memory_bytes = 24 * kGiB,
         .vendor = Vendor::nvidia,
         .units = 128,
         .half_peak_flops_per_second = 165.2e12,
         .full_peak_flops_per_second = 82.6e12,
         .fp8_peak_flops_per_second = 330.3e12,
         .sources =
             "16 bits: 13B fine-tuning of LoHan (arXiv 2403.06504, evaluation_data.md); f32: three quarters "
             "of the peak, assumed; bandwidth: 85% of NVIDIA's 1008 GB/s, assumed; link: as the others; "
             "launch: assumed; peaks: NVIDIA"}),
    gpu({.name = "h100",
         .full_name = "NVIDIA H100 80GB HBM3",
         .half_flops_per_second = 780e12,
         .full_flops_per_second = 50e12,
         .bytes_per_second = 3e12,
         .memory_bytes = 79 * kGiB,
         .vendor = Vendor::nvidia,
         .units = 132,
         .half_peak_flops_per_second = 989e12,
         .full_peak_flops_per_second = 67e12,
         .fp8_peak_flops_per_second = 1979e12,
         .sources = "16 bits and f32: as an H200, which has the same peaks; bandwidth: the share of 3.35 "
                    "TB/s that an "
                    "H200 reaches of its 4.8 TB/s; link: as the others; launch: assumed; peaks and "
                    "bandwidths: NVIDIA's "
                    "data sheets, of the SXM module without sparsity"}),
    gpu({.name = "h200",
         .full_name = "NVIDIA H200",
         .half_flops_per_second = 780e12,
         .full_flops_per_second = 50e12,
         .bytes_per_second = 4.3e12,
         .memory_bytes = 139 * kGiB,
         .vendor = Vendor::nvidia,
         .units = 132,
         .half_peak_flops_per_second = 989e12,
         .full_peak_flops_per_second = 67e12,
         .fp8_peak_flops_per_second = 1979e12,
         .sources =
             "16 bits: PyTorch 2.11 matmuls of 8192 on random numbers (769 to 798 TFLOP/s, measured); f32: "
             "three quarters of the peak, assumed; bandwidth: copies of 8.6 GB, measured; link: as the "
             "others; launch: assumed; peaks: NVIDIA, of the SXM GPU without sparsity"}),
    specified({"rx7900gre", "AMD Radeon RX 7900 GRE", Vendor::amd, 40, 91.96, 45.98, 576, 16, kRdna3}),
    specified({"rx7800xt", "AMD Radeon RX 7800 XT", Vendor::amd, 30, 74.65, 37.32, 624, 16, kRdna3}),
    specified({"rx7700xt", "AMD Radeon RX 7700 XT", Vendor::amd, 27, 70.34, 35.17, 432, 12, kRdna3}),
    specified({"rx7600", "AMD Radeon RX 7600", Vendor::amd, 16, 43.5, 21.75, 288, 8, kRdna3}),
    specified({"w7900", "AMD Radeon PRO W7900", Vendor::amd, 48, 122.6, 61.3, 864, 48, kRdna3}),
    specified({"radeon8060s", "AMD Radeon 8060S", Vendor::amd, 20, 59.4, 29.7, 256, 96, kRdna3}),
    specified({"rx9070xt", "AMD Radeon RX 9070 XT", Vendor::amd, 32, 195, 48.7, 640, 16, kRdna4}),
    specified({"rx9070", "AMD Radeon RX 9070", Vendor::amd, 28, 145, 36.1, 640, 16, kRdna4}),
    specified({"rx9060xt", "AMD Radeon RX 9060 XT", Vendor::amd, 16, 103, 25.6, 320, 16, kRdna4}),
    specified({"r9700", "AMD Radeon AI PRO R9700", Vendor::amd, 32, 191, 47.8, 640, 32, kRdna4}),
    specified({"rx6800xt", "AMD Radeon RX 6800 XT", Vendor::amd, 36, 41.47, 20.74, 512, 16, kRdna2}),
    specified({"rx6900xt", "AMD Radeon RX 6900 XT", Vendor::amd, 40, 46.08, 23.04, 512, 16, kRdna2}),
    specified({"rtx3090", "NVIDIA GeForce RTX 3090", Vendor::nvidia, 82, 71.2, 35.6, 936, 24, kNvidia}),
    specified({"rtx4070", "NVIDIA GeForce RTX 4070", Vendor::nvidia, 46, 58.3, 29.1, 504, 12, kNvidiaFp8}),
    specified({"rtx4080", "NVIDIA GeForce RTX 4080", Vendor::nvidia, 76, 97.5, 48.7, 717, 16, kNvidiaFp8}),
    specified(
        {"rtx5070ti", "NVIDIA GeForce RTX 5070 Ti", Vendor::nvidia, 70, 87.9, 43.9, 896, 16, kNvidiaFp8}),
    specified(
        {"rtx5090", "NVIDIA GeForce RTX 5090", Vendor::nvidia, 170, 209.5, 104.8, 1792, 32, kNvidiaFp8}),
    specified({"a100", "NVIDIA A100-SXM4-80GB", Vendor::nvidia, 108, 312, 19.5, 2039, 79, kNvidia}),
};

bool has_fp8_peak(const Device& device, MatmulPrecision matmul_precision) {
  return matmul_precision != MatmulPrecision::same && device.fp8_peak_flops_per_second > 0;
}

}  // namespace

std::span<const Device> known_gpus() { return kGpus; }

const Device& find_gpu(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Device& gpu : kGpus) {
    if (gpu.name == name) return gpu;
    names.push_back(gpu.name);
  }
  user_error("unknown GPU '{}'; known GPUs are {}", name, fmt::join(names, ", "));
}

const Device* find_gpu_by_driver_name(std::string_view full_name) {
  const auto* const found = std::ranges::find(kGpus, full_name, &Device::full_name);
  return found == std::end(kGpus) ? nullptr : found;
}

const Device& nearest_gpu(std::string_view full_name) {
  if (const Device* const known = find_gpu_by_driver_name(full_name)) return *known;
  return full_name.starts_with("NVIDIA") ? find_gpu("rtx4090") : default_gpu();
}

const Device& default_gpu() { return kGpus[0]; }

// The emulator runs one kernel or copy at a time (no overlap), and at the same rate in 16 bits and f32.
Device emulated_gpu(DType precision) {
  Device gpu = default_gpu();
  gpu.name = gpu.full_name = "emulated";
  if (precision == DType::f32) gpu.half_flops_per_second = gpu.full_flops_per_second;
  gpu.full_flops_per_second = gpu.half_flops_per_second;
  gpu.launch_seconds = 0;
  gpu.overlaps = false;
  gpu.vendor = Vendor::none;
  return gpu;
}

double peak_flops_per_second(const Device& device, DType precision) {
  return precision == DType::f32 ? device.full_peak_flops_per_second : device.half_peak_flops_per_second;
}

double peak_flops_per_second(const Device& device, DType precision, MatmulPrecision matmul_precision) {
  return has_fp8_peak(device, matmul_precision) ? device.fp8_peak_flops_per_second
                                                : peak_flops_per_second(device, precision);
}

std::string_view peak_note(const Device& device, MatmulPrecision matmul_precision) {
  return has_fp8_peak(device, matmul_precision) ? " of the FP8 peak" : "";
}

}  // namespace hearth::cost
