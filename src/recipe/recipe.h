#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/choices.h"
#include "base/extent.h"
#include "base/path.h"

namespace hearth::recipe {

/// What sums over devices go by: host memory, or the vendor's library between GPUs.
enum class Transport : uint8_t { host, nccl };
enum class AdapterKind : uint8_t { none, lora };
/// What becomes of a record that cannot be used: the run ends, or it is left out and counted.
enum class BadRecords : uint8_t { refuse, skip };
/// Whether to drop a smaller last micro-batch of an epoch. Automatic: only if the model cannot train on it.
enum class DropLast : uint8_t { automatic, no, yes };
/// What one document of plain text is.
enum class Document : uint8_t { file, paragraph, line };
/// What is minimized. The last three train a denoiser, which predicts of a noisy picture: noise less picture
/// (flow matching, Lipman et al. 2022, arXiv 2210.02747), the noise (Ho et al. 2020, arXiv 2006.11239), or v
/// (Salimans and Ho 2022, arXiv 2202.00512).
enum class Objective : uint8_t { cross_entropy, dpo, flow, epsilon, v };
/// How much noise training pictures get (tasks/diffuse/noising.h).
enum class NoiseSampling : uint8_t { uniform, sigmoid, shift, flux_shift, logit_normal, mode };
/// How losses are weighed by the noise.
enum class NoiseWeighting : uint8_t { none, sigma_sqrt, cosmap, min_snr };
/// How classes of masks are weighed in the loss.
enum class ClassWeights : uint8_t { none, given, median_frequency };
/// Source of the mean and std for normalizing images. Automatic: config.json of the `init` weights, else
/// data.mean and data.std. Given: data.mean and data.std.
enum class Normalize : uint8_t { automatic, given, imagenet, half, dataset };
/// How the learning rate moves over a run.
enum class ScheduleKind : uint8_t { constant, step, cosine, onecycle };
/// Kind of a dataset, as far as the checks of a recipe distinguish it. Names of data.kind are in a registry.
enum class DataKind : uint8_t {
  shapes,   ///< needs no data.path
  tensors,  ///< of any number of channels
  text,     ///< of language models
  pictures  ///< every other name: a dataset in a folder
};

}  // namespace hearth::recipe

namespace hearth {

template <>
inline constexpr auto kNames<recipe::Transport> = std::to_array<std::string_view>({"host", "nccl"});
template <>
inline constexpr auto kNames<recipe::AdapterKind> = std::to_array<std::string_view>({"", "lora"});
template <>
inline constexpr auto kNames<recipe::BadRecords> = std::to_array<std::string_view>({"refuse", "skip"});
template <>
inline constexpr auto kNames<recipe::DropLast> = std::to_array<std::string_view>({"auto", "false", "true"});
template <>
inline constexpr auto kNames<recipe::Document> = std::to_array<std::string_view>({"file", "paragraph",
                                                                                  "line"});
template <>
inline constexpr auto kNames<recipe::Objective> = std::to_array<std::string_view>({"cross_entropy", "dpo",
                                                                                   "flow", "epsilon", "v"});
template <>
inline constexpr auto kNames<recipe::NoiseSampling> =
    std::to_array<std::string_view>({"uniform", "sigmoid", "shift", "flux_shift", "logit_normal", "mode"});
template <>
inline constexpr auto kNames<recipe::NoiseWeighting> = std::to_array<std::string_view>({"none", "sigma_sqrt",
                                                                                        "cosmap", "min_snr"});
template <>
inline constexpr auto kNames<recipe::ClassWeights> = std::to_array<std::string_view>({"none", "given",
                                                                                      "median_frequency"});
template <>
inline constexpr auto kNames<recipe::Normalize> =
    std::to_array<std::string_view>({"auto", "given", "imagenet", "half", "dataset"});
template <>
inline constexpr auto kNames<recipe::ScheduleKind> = std::to_array<std::string_view>({"constant", "step",
                                                                                      "cosine", "onecycle"});
template <>
inline constexpr auto kNames<recipe::DataKind> = std::to_array<std::string_view>({"shapes", "tensors",
                                                                                  "text"});

}  // namespace hearth

namespace hearth::recipe {

/// The name of a device that is no GPU.
inline constexpr const char* kCpu = "cpu";

DataKind data_kind(std::string_view name);

struct Passes {
  std::vector<std::string> off;
};

/// What waits in host memory.
struct Offload {
  bool states = false;
  bool weights = false;
  bool activations = false;
};

struct Exchange {
  Transport transport = Transport::host;
  Compress compress = Compress::none;
  int64_t local_steps = 1;
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
};

/// A built-in model of images, or a language model's files.
struct Model {
  std::string name = "simplecnn";
  std::string path;                      ///< a transformers folder: config.json, weights, tokenizer
  std::string config;                    ///< config.json of a new model instead
  std::string autoencoder;               ///< folder of a diffusion model's VAE; empty: vae in `path`
  std::string tokenizer;                 ///< folder or file; empty: in the folder of the model or config
  int64_t num_classes = 0;               ///< image models; 0: taken from the data
  std::vector<std::string> class_names;  ///< image models: by class index; empty: taken from the data
  std::vector<int64_t> hidden = {512, 256};
  double dropout = 0.2;
  int64_t width = 0;  ///< 0: the model's own
  bool frozen_norm = false;

  /// Returns the path of config.json: `config` (unpacked if built in), or the one in `path`.
  fs::path config_file() const;
};

/// A low-rank adapter, as PEFT's adapter_config.json says it too.
struct Adapter {
  AdapterKind name = AdapterKind::none;  ///< none: there is one all the same if there is a path
  std::string path;                      ///< a PEFT adapter to start from: its rank, alpha and modules hold
  int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  bool rslora = false;  ///< scale alpha / sqrt(rank) (Kalajdzievski 2023, arXiv 2312.03732), not alpha / rank
  std::vector<std::string> targets = {"all-linear"};
  std::string quantize;  ///< how the model under it is stored; empty: as it is
  std::vector<std::string> modules_to_save;

  bool wanted() const { return name != AdapterKind::none || !path.empty(); }
  double scale() const;
};

/// Images, or text: see data/loader_options.h, text/samples.h and text/packing.h.
struct Data {
  std::string kind = std::string(name_of(DataKind::shapes));
  fs::path path;
  Extent image_size = 32;
  int64_t channels = 3;
  int64_t count = 10000;
  int64_t val_count = 1000;
  bool allow_outside = false;  ///< labels may name images outside of data.path
  bool shuffle = true;
  bool balance = false;  ///< images: each class is drawn equally often
  int64_t threads = 1;
  int64_t crop_padding = 0;
  bool flip = false;
  bool resize = true;  ///< masks: resize images; false: sliding windows
  float jitter = 0;
  Normalize normalize = Normalize::automatic;
  DropLast drop_last = DropLast::automatic;
  Exif exif = Exif::apply;
  std::vector<float> mean = {0.5F};
  std::vector<float> std = {0.5F};
  std::vector<float> scale = {1, 1};   ///< masks: random scale from, to
  std::string classes;                 ///< masks: file of the class table
  std::string unlabeled = "auto";      ///< masks: a number, auto or none
  std::vector<int64_t> class_numbers;  ///< masks: see data::MaskOptions::class_numbers
  int64_t keep_pictures = 0;  ///< bytes of decoded pictures that are kept in memory, over all devices
  int64_t context = 1024;     ///< tokens of a row
  std::string val_path;       ///< held-out text; empty: the last val_share of the data
  double val_share = 0.1;
  RecordFormat format = RecordFormat::detect;
  std::vector<std::string> fields;  ///< "prompt=frage": what the data calls a field
  std::string template_;            ///< data.template: built-in name or file; empty: the tokenizer's own
  std::string date;  ///< YYYY-MM-DD that templates see as today; empty: today, which a run keeps
  std::vector<std::string> variables;  ///< of the template: "enable_thinking=false"
  BadRecords bad_records = BadRecords::refuse;
  bool train_on_prompt = false;
  bool train_on_generation_prompt = false;  ///< train the prompt's end if the answer repeats it
  bool packing = true;                      ///< several samples to a row, without attention between them
  Overlong overlong = Overlong::automatic;
  Document document = Document::file;
  std::string cache;  ///< folder of tokens; empty: the user's cache folder

  /// Whether a file of text is one stream of tokens rather than samples.
  bool is_stream(const fs::path& file) const;
};

struct Train {
  int64_t steps = 0;  ///< 0: epochs decide
  int64_t epochs = 1;
  Objective objective = Objective::cross_entropy;
  int64_t batch = 32;
  int64_t accumulate = 1;
  int64_t shards = 0;  ///< 0: as many as devices
  int64_t checkpoint_every = 500;
  double memory_checkpoint_every = 20;  ///< seconds; 0: none
  int64_t keep_checkpoints = 2;
  int64_t eval_every = 0;      ///< 0: at the end of each epoch
  bool eval_on_start = false;  ///< the first weights too
  int64_t log_every = 10;
  double label_smoothing = 0;
  double clip_norm = 0;
  double ema = 0;
  int64_t early_stop = 0;           ///< evaluations without a better score, 0: off
  std::vector<std::string> freeze;  ///< modules that do not train
};

/// Segmentation: losses, which are added up, and how its classes are weighed.
struct Segment {
  std::vector<std::string> loss = {"cross_entropy"};
  ClassWeights class_weights = ClassWeights::none;
  std::vector<float> weights;  ///< of ClassWeights::given
};

/// Detection: how training pictures are mixed and changed (data/box_augment.h), and what is kept of
/// predictions.
struct Detect {
  double mosaic = 1, mixup = 0;
  double degrees = 10, translate = 0.1, shear = 2;
  std::vector<float> scale = {0.5F, 1.5F};
  bool hsv = true;
  int64_t plain_epochs = 15;
  std::vector<int64_t> sizes;  ///< of several scales; empty: data.image_size alone
  int64_t max_boxes = 120;
  double score = 0.01, nms = 0.65;
  int64_t max_detections = 100;
  double shown_score = 0.25;
};

/// Updates that come to gradients or losses that are not finite, or to a loss far above those before: all is
/// made as it was, and their samples are left out.
struct BadSteps {
  int64_t most = 10;   ///< in a run; one more ends it, and so do three one after the other
  double z_score = 0;  ///< a loss so many standard deviations above the mean is bad; 0: off
};

/// What GPUs are kept below, by gaps between steps.
struct Thermal {
  double limit = 0;  ///< Celsius; 0: 5 K below the limit that a GPU has itself
};
struct Power {
  double limit = 0;  ///< Watts of each GPU; 0: none
};

/// Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290).
struct Dpo {
  double beta = 0.1;           ///< how dear it is to leave the reference
  double label_smoothing = 0;  ///< the share of pairs that are taken to be the wrong way round
};

/// Training of a denoiser: its noise, and the pictures that evaluations make.
struct Diffuse {
  NoiseSampling sampling = NoiseSampling::sigmoid;
  double mean = 0, std = 1;  ///< of the normal under the sigmoid
  double shift = 3;          ///< of NoiseSampling::shift
  double mode_scale = 1.29;  ///< of NoiseSampling::mode
  NoiseWeighting weighting = NoiseWeighting::none;
  double min_snr = 5;    ///< gamma of NoiseWeighting::min_snr
  double dropout = 0.1;  ///< the share of training pictures that lose their class or caption
  std::string trigger;   ///< put before captions that do not have it
  std::string prior;     ///< folder of pictures of the class, for prior preservation
  double prior_weight = 1;
  int64_t text_tokens = 512;
  int64_t val_pictures = 64;         ///< held-out pictures of the loss at fixed noise
  std::vector<std::string> prompts;  ///< of the pictures that evaluations make; empty: of the data
  int64_t steps = 20;                ///< of the sampler
  double guidance = 1;               ///< of these pictures
  int64_t judged = 0;                ///< pictures whose class a classifier judges in the end
};

struct Optimizer {
  std::string name = "sgd";
  double lr = 0.05;
  double momentum = 0.9;
  bool nesterov = false;
  bool in_backward = false;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::vector<std::string> rates;  ///< "module=factor"
};

struct Schedule {
  ScheduleKind name = ScheduleKind::cosine;
  int64_t warmup_steps = 0;
  int64_t step_size = 1000;  ///< step: every so many steps ...
  double gamma = 0.1;        ///< ... the rate is multiplied by this
  double min_lr = 0;         ///< cosine: the last rate
};

/// A whole run as its YAML file says it: the key "train.batch" is train.batch here, and defaults are these.
/// What keys mean and may be is in fields.cpp.
struct Recipe {
  uint64_t seed = 0;
  int64_t threads = 0;                   ///< 0: every processor
  std::string device = kCpu;             ///< or a GPU, as in exec::GpuWish
  int64_t reserve = int64_t{512} << 20;  ///< bytes of a GPU that are left free
  int64_t devices = 1;                   ///< workers that share each update, a device each
  Parallel parallel = Parallel::data;
  bool supervise = true;  ///< by a process that starts it again when it fails
  SelfTestMode self_test = SelfTestMode::once;
  RecordMode record = RecordMode::automatic;
  DType precision = DType::f32;
  int64_t memory = 0;  ///< arena budget in bytes, 0: none
  std::string init;    ///< safetensors to start from
  Passes passes;
  Offload offload;
  Exchange exchange;
  Model model;
  Adapter adapter;
  Data data;
  Train train;
  Segment segment;
  Detect detect;
  BadSteps bad_steps;
  Thermal thermal;
  Power power;
  Dpo dpo;
  Diffuse diffuse;
  Optimizer optimizer;
  Schedule schedule;
};

/// Whether the recipe trains a language model.
bool is_text(const Recipe& recipe);
/// Whether it trains a denoiser, which makes pictures.
bool makes_pictures(const Recipe& recipe);
/// Whether rows of its text hold several documents.
bool has_documents(const Recipe& recipe);
/// Whether its records are pairs of a chosen and a rejected answer.
bool has_pairs(const Recipe& recipe);
/// The model's name, for people.
std::string model_name(const Recipe& recipe);
/// Threads of each of its workers: where it says 0, an equal part of all cores.
int num_threads(const Recipe& recipe);
/// Entry of passes.off that is a choice of kernels instead of a pass.
inline constexpr const char* kWinograd = "winograd";
/// Whether workers keep what the others do not know, so that a run continues with as many as it had.
bool have_own_states(const Recipe& recipe);
/// How many of at most `num_devices` devices can share each update to the same bits; 0: none can.
int num_sharing(const Recipe& recipe, int num_devices);
/// The same model and data on one device, for a run that several have trained.
Recipe on_one_device(Recipe recipe);

}  // namespace hearth::recipe
