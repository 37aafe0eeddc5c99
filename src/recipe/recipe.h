#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/choices.h"
#include "base/extent.h"
#include "base/path.h"
#include "base/pruning.h"
#include "base/qat_scheme.h"

namespace hearth::recipe {

/// Transport of the gradient all-reduce: host memory, or NCCL/RCCL between GPUs.
enum class Transport : uint8_t { host, nccl };
enum class AdapterKind : uint8_t { none, lora };
/// Action for an unusable record: end the run, or skip and count the record.
enum class BadRecords : uint8_t { refuse, skip };
/// Handling of a smaller last micro-batch of an epoch. Automatic: drops it only if the model cannot train on
/// it (batch norm over one row).
enum class DropLast : uint8_t { automatic, no, yes };
/// Unit of plain text that counts as one document.
enum class Document : uint8_t { file, paragraph, line };
/// Training objective. flow, epsilon and v train a denoiser: from a noisy image it predicts noise - image
/// (flow matching, Lipman et al. 2022, arXiv 2210.02747), the noise (Ho et al. 2020, arXiv 2006.11239), or
/// the velocity v (Salimans and Ho 2022, arXiv 2202.00512).
enum class Objective : uint8_t { cross_entropy, dpo, flow, epsilon, v };
/// Distribution of the timesteps of training images (tasks/diffuse/noising.h).
enum class NoiseSampling : uint8_t { uniform, sigmoid, shift, flux_shift, logit_normal, mode };
/// Loss weight as a function of the timestep.
enum class NoiseWeighting : uint8_t { none, sigma_sqrt, cosmap, min_snr };
/// Source of the class weights in the segmentation loss.
enum class ClassWeights : uint8_t { none, given, median_frequency };
/// Source of the mean and std for normalizing images. automatic: config.json of the `init` weights, or
/// data.mean and data.std if it has none. given: data.mean and data.std. imagenet, half: known constants.
/// dataset: measured on the training images.
enum class Normalize : uint8_t { automatic, given, imagenet, half, dataset };
/// Learning rate schedule.
enum class ScheduleKind : uint8_t { constant, step, cosine, onecycle };
/// Output of the metrics of a run. jsonl: trainer_log.jsonl, which every run has.
enum class Logger : uint8_t { tensorboard, csv, mlflow, wandb, trackio, jsonl };
/// Category of a value of data.kind, for the checks of a recipe. The names of all kinds are in Choices.
enum class DataKind : uint8_t {
  shapes,   ///< generated images; needs no data.path
  tensors,  ///< a safetensors file of images with any number of channels
  text,     ///< text of language models
  images    ///< all other kinds: images in a folder
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
inline constexpr auto kNames<recipe::Logger> =
    std::to_array<std::string_view>({"tensorboard", "csv", "mlflow", "wandb", "trackio", "jsonl"});
template <>
inline constexpr auto kNames<recipe::DataKind> = std::to_array<std::string_view>({"shapes", "tensors",
                                                                                  "text"});

}  // namespace hearth

namespace hearth::recipe {

/// Value of Recipe::device for training on the CPU.
inline constexpr const char* kCpu = "cpu";

/// Returns the category of a value of data.kind; `images` for names that are not in kNames<DataKind>.
DataKind data_kind(std::string_view name);

// Each struct below is a section of the YAML file with the same name.

struct Passes {
  std::vector<std::string> off;
};

/// Kinds of values that are offloaded to host memory: optimizer states, weights, activations.
struct Offload {
  bool states = false;
  bool weights = false;
  bool activations = false;
};

/// Communication between devices. With local_steps > 1, devices train separately and make an outer step every
/// local_steps updates (DiLoCo, Douillard et al. 2023, arXiv 2311.08105).
struct Exchange {
  Transport transport = Transport::host;
  Compress compress = Compress::none;
  int64_t local_steps = 1;
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
};

/// A built-in image model, or the files of a language model or denoiser.
struct Model {
  std::string name = "simplecnn";
  /// Model folder in the layout of transformers or diffusers; empty: new model from `config`.
  std::string path;
  std::string config;  ///< config.json of a new model with random weights; empty: existing model in `path`
  /// Folder of a diffusion model's autoencoder (VAE); empty: the subfolder vae of `path`.
  std::string autoencoder;
  std::string tokenizer;    ///< tokenizer folder or file; empty: the folder of `path` or `config`
  int64_t num_classes = 0;  ///< image models: number of classes; 0: taken from the data
  /// Image models: class names by class index; empty: taken from the data.
  std::vector<std::string> class_names;
  std::vector<int64_t> hidden = {512, 256};
  double dropout = 0.2;
  int64_t width = 0;         ///< channels of the first layer (stem); 0: default of the model
  bool frozen_norm = false;  ///< detection: true if batch norms of the backbone are not trained
  /// Image models: numbers of channels of layers of a pruned model, entries such as "conv1=48"; coupled
  /// layers have the same number.
  std::vector<std::string> widths;

  /// Returns the path of config.json: `config` (unpacked if built in), or config.json in `path`.
  fs::path config_file() const;
};

/// Low-rank adapter (LoRA, Hu et al. 2021, arXiv 2106.09685), with the settings of PEFT's
/// adapter_config.json.
struct Adapter {
  AdapterKind name = AdapterKind::none;  ///< none: no adapter, unless `path` is set
  /// PEFT adapter to start from; its rank, alpha and target modules replace those of the recipe.
  std::string path;
  int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  bool rslora = false;  ///< scale alpha / sqrt(rank) (Kalajdzievski 2023, arXiv 2312.03732), not alpha / rank
  std::vector<std::string> targets = {"all-linear"};
  std::string quantize;  ///< quantization of the frozen linear layers: nf4, int8, fp8; empty: unquantized
  std::vector<std::string> modules_to_save;

  /// True if the recipe trains an adapter.
  bool wanted() const { return name != AdapterKind::none || !path.empty(); }
  /// Returns the factor of the adapter's output.
  double scale() const;
};

/// Training data and augmentation: see data/loader_options.h, text/samples.h and text/packing.h.
struct Data {
  std::string kind = std::string(name_of(DataKind::shapes));
  fs::path path;
  Extent image_size = 32;
  int64_t channels = 3;
  int64_t count = 10000;
  int64_t val_count = 1000;
  bool allow_outside = false;  ///< true if labels may refer to images outside of data.path
  bool shuffle = true;
  bool balance = false;      ///< images: true if training draws each class equally often
  int64_t threads = 1;       ///< threads that decode images; 0: the training thread decodes
  int64_t crop_padding = 0;  ///< padding of random crops, in pixels
  bool flip = false;
  /// Masks: true if images are resized to image_size; false: sliding windows of this size.
  bool resize = true;
  float jitter = 0;  ///< max change of brightness, contrast and saturation, as a fraction
  Normalize normalize = Normalize::automatic;
  DropLast drop_last = DropLast::automatic;
  Exif exif = Exif::apply;
  /// Mean of pixels in [0, 1]: one value, or one per channel; `std` has the same form.
  std::vector<float> mean = {0.5F};
  std::vector<float> std = {0.5F};
  std::vector<float> scale = {1, 1};  ///< masks: range of the random scale factor
  std::string classes;                ///< masks: file that lists the classes
  /// Masks: pixel value without a label, which is ignored: a number, auto or none.
  std::string unlabeled = "auto";
  std::vector<int64_t> class_numbers;  ///< masks: see data::MaskOptions::class_numbers
  int64_t keep_images = 0;  ///< max bytes of the cache of decoded images in host memory, over all devices
  int64_t context = 1024;   ///< max tokens in a row (sequence length)
  std::string val_path;     ///< file with held-out text; empty: holds out the last val_share of the data
  double val_share = 0.1;
  RecordFormat format = RecordFormat::detect;
  std::vector<std::string> fields;  ///< names of the record fields in the data: "prompt=question"
  std::string template_;            ///< data.template: built-in name or file; empty: the tokenizer's template
  std::string date;                 ///< date in chat templates, YYYY-MM-DD; empty: first day of the run
  std::vector<std::string> variables;  ///< variables of the template: "enable_thinking=false"
  BadRecords bad_records = BadRecords::refuse;
  bool train_on_prompt = false;
  /// True: the loss also counts those tokens of an answer that the chat template already puts into the prompt
  /// for generation, such as an empty thinking block.
  bool train_on_generation_prompt = false;
  bool packing = true;  ///< true: packs several samples into a row, without attention between them
  Overlong overlong = Overlong::automatic;
  Document document = Document::file;
  std::string cache;  ///< folder for cached tokens and latents; empty: the user's cache folder

  /// True if a text file is read as one stream of tokens, not as separate samples.
  bool is_stream(const fs::path& file) const;
};

struct Train {
  int64_t steps = 0;  ///< total number of updates; 0: determined by `epochs`
  int64_t epochs = 1;
  Objective objective = Objective::cross_entropy;
  int64_t batch = 32;      ///< rows of a micro-batch
  int64_t accumulate = 1;  ///< micro-batches per update, over all devices together
  int64_t shards = 0;      ///< parts of an update whose gradients are summed separately; 0: one per device
  int64_t checkpoint_every = 500;       ///< updates
  double memory_checkpoint_every = 20;  ///< seconds; 0: none
  int64_t keep_checkpoints = 2;
  int64_t eval_every = 0;      ///< updates; 0: at the end of each epoch
  bool eval_on_start = false;  ///< true: also evaluate the initial weights
  int64_t log_every = 10;      ///< updates
  double label_smoothing = 0;
  double clip_norm = 0;             ///< max global norm of the gradients; 0: off
  double ema = 0;                   ///< decay of the exponential moving average of the weights; 0: off
  int64_t early_stop = 0;           ///< max evaluations without a better score; 0: off
  std::vector<std::string> freeze;  ///< prefixes of the modules that are not trained
};

/// Segmentation: loss terms, whose sum is the loss, and class weights.
struct Segment {
  std::vector<std::string> loss = {"cross_entropy"};
  ClassWeights class_weights = ClassWeights::none;
  std::vector<float> weights;  ///< loss weight of each class, for ClassWeights::given
};

/// Detection: augmentation (data/box_augment.h) and filtering of predictions.
struct Detect {
  double mosaic = 1, mixup = 0;  ///< probability that a training image is augmented by mosaic, by mixup
  /// Max rotation in degrees, shift as a fraction of the image, shear in degrees.
  double degrees = 10, translate = 0.1, shear = 2;
  std::vector<float> scale = {0.5F, 1.5F};  ///< range of the random scale factor
  bool hsv = true;
  int64_t plain_epochs = 15;   ///< number of last epochs, in which images are only flipped
  std::vector<int64_t> sizes;  ///< multi-scale training: sides in pixels; empty: data.image_size
  int64_t max_boxes = 120;     ///< max boxes of a training image
  /// Min score of detections in evaluations; max IoU of kept boxes in non-maximum suppression.
  double score = 0.01, nms = 0.65;
  int64_t max_detections = 100;
  double shown_score = 0.25;  ///< min score of a drawn prediction
};

/// Rollback of bad steps: after an update with a non-finite loss or gradient, or a loss spike, the run
/// returns to the newest checkpoint and skips the samples of that update (run/rollback.h).
struct BadSteps {
  int64_t max = 10;  ///< max skipped updates of a run; the run also ends after three skipped updates in a row
  double z_score = 0;  ///< a loss above mean + z_score standard deviations is a spike; 0: off
};

/// Temperature limit of GPUs, enforced by idling between steps.
struct Thermal {
  double limit = 0;  ///< limit in degrees Celsius; 0: 5 degrees below the GPU's own limit
};
/// Power limit of GPUs, enforced by idling between steps.
struct Power {
  double limit = 0;  ///< limit of the mean power in watts per GPU; 0: no limit
};

/// Loggers of a run.
struct Log {
  std::vector<Logger> to = {Logger::tensorboard};
  /// URL that receives messages about the run, or env:NAME for the value of an environment variable; empty:
  /// none.
  std::string webhook;
  std::string project;  ///< name of the experiment (mlflow) or project (wandb, trackio); empty: "hearth"
  std::string name;     ///< name of the run in loggers; empty: the name of the run folder

  bool has(Logger logger) const { return std::ranges::find(to, logger) != to.end(); }
};

/// Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290).
struct Dpo {
  double beta = 0.1;           ///< strength of the penalty for diverging from the reference model
  double label_smoothing = 0;  ///< assumed fraction of pairs with swapped labels
};

/// Knowledge distillation (Hinton et al. 2015, arXiv 1503.02531): a teacher's distribution of the classes of
/// an image, or of the next token, is a second target.
struct Distill {
  /// File of hearth distill capture, or the teacher: a run folder, a folder of a language model or its GGUF
  /// file; empty: no distillation.
  std::string from;
  double weight = 0.5;  ///< loss: (1 - weight) loss of the labels + weight temperature^2 divergence
  double temperature = 1;
  Divergence loss = Divergence::forward;
  double beta = 0.5;   ///< weight of the teacher in the mixture of Divergence::jsd
  int64_t top_k = 64;  ///< number of tokens that a teacher in a folder lists; the others count as one
  /// Quantization of the linear layers of a language model's teacher: nf4, int8, fp8; empty: unquantized.
  std::string quantize;
};

/// Training of a denoiser: noise, and the images that evaluations generate.
struct Diffuse {
  NoiseSampling sampling = NoiseSampling::sigmoid;
  double mean = 0, std = 1;  ///< mean and std of the normal distribution for sigmoid and logit_normal
  double shift = 3;          ///< timestep shift of NoiseSampling::shift
  double mode_scale = 1.29;  ///< scale of NoiseSampling::mode
  NoiseWeighting weighting = NoiseWeighting::none;
  double min_snr = 5;  ///< gamma of NoiseWeighting::min_snr
  /// Fraction of training images whose class or caption is dropped, for classifier-free guidance.
  double dropout = 0.1;
  std::string trigger;               ///< trigger word, prepended to captions that lack it
  std::string prior;                 ///< folder of images of the class, for prior preservation
  double prior_weight = 1;           ///< loss weight of the images of `prior`
  int64_t text_tokens = 512;         ///< max tokens of a caption
  int64_t val_images = 64;           ///< number of held-out images for the evaluation loss
  std::vector<std::string> prompts;  ///< prompts of generated images; empty: classes or captions of the data
  int64_t steps = 20;                ///< sampling steps of generated images
  double guidance = 1;               ///< guidance scale of generated images
  /// Number of images to generate after training, whose class a classifier checks; 0: off.
  int64_t judged = 0;
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
  std::vector<std::string> rates;  ///< factors of the learning rate: "module=factor"
};

struct Schedule {
  ScheduleKind name = ScheduleKind::cosine;
  int64_t warmup_steps = 0;
  int64_t step_size = 1000;  ///< for ScheduleKind::step: updates between decreases of the learning rate
  double gamma = 0.1;        ///< for ScheduleKind::step: factor of each decrease
  double min_lr = 0;         ///< for ScheduleKind::cosine: final learning rate
};

/// Quantization-aware training.
struct Quantize {
  QatScheme qat = QatScheme::none;  ///< rounding of linear layers
  int64_t group = 0;                ///< number of adjacent weights that share a scale; 0: a default
  int64_t after_steps = 0;          ///< number of updates before rounding begins
};

/// Pruning during training. Updates from_step, from_step + every, ... and to_step begin by setting the masks.
struct Prune {
  PruneMethod method = PruneMethod::none;
  double sparsity = 0.5;
  PrunePattern pattern = PrunePattern::unstructured;
  PruneScope scope = PruneScope::layer;
  std::vector<std::string> keep;
  int64_t from_step = 0;
  int64_t to_step = 0;  ///< at most from_step: prunes once
  int64_t every = 100;
  double drop = 0.3;  ///< RigL: fraction of the remaining weights that the first exchange replaces

  int64_t last_step() const { return std::max(from_step, to_step); }
  bool operator==(const Prune&) const = default;
};

/// Configuration of a run: the contents of its YAML file. The key "train.batch" is the member train.batch;
/// the member initializers are the defaults. Meaning and range of each key are in fields.cpp.
struct Recipe {
  uint64_t seed = 0;
  int64_t threads = 0;        ///< CPU threads; 0: one per core
  std::string device = kCpu;  ///< kCpu or a GPU, as in exec::GpuRequest
  int64_t reserve = 0;        ///< bytes of GPU memory to leave free for other programs; 0: a default by GPU
  int64_t devices = 1;        ///< number of workers; each has a device
  Parallel parallel = Parallel::data;
  bool supervise = true;  ///< true: a supervisor process restarts failed workers
  SelfTestMode self_test = SelfTestMode::once;
  RecordMode record = RecordMode::automatic;
  DType precision = DType::f32;
  MatmulPrecision matmul_precision = MatmulPrecision::same;  ///< of linear layers in transformer blocks
  int64_t memory = 0;                                        ///< max bytes of the memory arena; 0: no limit
  /// Precision of activations that are saved for the backward pass.
  SavedActivations saved_activations = SavedActivations::full;
  std::string init;  ///< file with initial weights; empty: random weights, or those in model.path
  Passes passes;
  Offload offload;
  Exchange exchange;
  Model model;
  Adapter adapter;
  Quantize quantize;
  Prune prune;
  Data data;
  Train train;
  Segment segment;
  Detect detect;
  BadSteps bad_steps;
  Thermal thermal;
  Power power;
  Log log;
  Dpo dpo;
  Distill distill;
  Diffuse diffuse;
  Optimizer optimizer;
  Schedule schedule;
};

/// True if the recipe trains a language model.
bool is_text(const Recipe& recipe);
/// True if the recipe trains a denoiser, which generates images.
bool is_image_generation(const Recipe& recipe);
/// True if rows of text may contain several documents.
bool has_documents(const Recipe& recipe);
/// True if the records are pairs of a chosen and a rejected answer (DPO).
bool has_pairs(const Recipe& recipe);
/// Returns the name of the model for users: model.name, or the name of the model's folder.
std::string model_name(const Recipe& recipe);
/// Returns the precision for users: "bf16", or "bf16, matmuls fp8".
std::string precision_name(const Recipe& recipe);
/// Returns the number of CPU threads of each worker; with threads=0, divides all cores equally among the
/// workers.
int num_threads(const Recipe& recipe);
/// Entry of passes.off that disables Winograd convolutions; not a graph pass.
inline constexpr const char* kWinograd = "winograd";
/// True if workers keep private state (compression residuals, local weights of DiLoCo), so that a run can
/// resume only with the same number of workers.
bool have_private_states(const Recipe& recipe);
/// Returns the max number of workers, at most `num_devices`, with which a run gives bitwise the same results
/// as with all recipe.devices; 0 if there is none.
int num_usable_devices(const Recipe& recipe, int num_devices);
/// Returns a copy of the recipe that trains the same on one device.
Recipe on_one_device(Recipe recipe);

}  // namespace hearth::recipe
