#include "recipe/fields.h"

#include <fmt/ranges.h>

#include "recipe/field_kinds.h"
#include "recipe/log_keys.h"
#include "recipe/prune_keys.h"
#include "recipe/task_fields.h"

namespace hearth::recipe {
namespace {

void add_run_fields(std::vector<Field>& fields) {
  const auto key = top_level(fields);
  key("seed", "Seed of initial weights, shuffling, augmentation and dropout", &Recipe::seed);
  key("threads", "CPU threads of a worker; 0: all cores, divided equally between workers", &Recipe::threads,
      IntegerRange{0, 1024});
  key("device",
      "Device to train on. cpu; gpu: first GPU; gpu:0 or gpu:0000:03:00.0: this GPU (hearth doctor lists "
      "them); emulated: run GPU kernels on the CPU, for tests",
      &Recipe::device, Device())
      .advice = "device=gpu for the first AMD or NVIDIA GPU";
  key("reserve",
      "GPU memory to leave free for the desktop and other programs, e.g. 2GiB; 0: 512MiB, or 1GiB if a "
      "display is connected to the GPU",
      &Recipe::reserve, Bytes{"a size like 512MiB, or 0 for the default"});
  key("devices", "Number of devices that share each update; each has a worker process", &Recipe::devices,
      IntegerRange{1, 64});
  key("parallel",
      "Parallelism strategy for several devices. data: full model on each device; zero1: optimizer state "
      "sharded over the devices; sharded: weights sharded too (FSDP); pipeline: each device holds some of "
      "the layers",
      &Recipe::parallel);
  key("supervise", "Restart a run that crashes or hangs from its newest checkpoint", &Recipe::supervise);
  key("self_test",
      "When to test the kernels of a GPU. once: test and store the result; always: before each run; never",
      &Recipe::self_test);
  key("record",
      "Record the steps of a GPU as graphs and replay them. auto: as long as replays 1, 2, 50 and one per "
      "hour give the same bits as launching the kernels one by one; always; never",
      &Recipe::record);
  key("precision", "Precision of training: fp32, bf16, or fp16 with dynamic loss scaling",
      &Recipe::precision);
  key("matmul_precision",
      "Precision of linear layers in transformer blocks. same: as precision; fp8: operands rounded to E4M3 "
      "with a scale per row or column; fp8-tensor: a scale per tensor; fp8-blocks: a scale per 128 elements",
      &Recipe::matmul_precision);
  key("memory",
      "Memory budget of activations, gradients and workspaces, e.g. 10GiB; activations are recomputed to "
      "meet it; 0: no budget",
      &Recipe::memory, Bytes{"a size like 20GiB, or 0 for no budget"});
  key("saved_activations",
      "Precision of activations saved for the backward pass. full: that of training; fp8: E4M3 with row "
      "scales, rounds gradients; auto: fp8 if the step does not fit `memory` otherwise, or is faster",
      &Recipe::saved_activations);
  key("init", "File with initial weights: safetensors, or .pt, .pth and .bin of torch.save", &Recipe::init);
}

void add_pass_fields(std::vector<Field>& fields) {
  section(fields, "passes", &Recipe::passes)(
      "off", "Graph passes to disable (hearth dump --list lists them); winograd: Winograd convolutions",
      &Passes::off);
}

void add_offload_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "offload", &Recipe::offload);
  key("states", "Keep optimizer state, accumulated gradients and moving averages in host memory",
      &Offload::states);
  key("weights", "Keep weights in host memory", &Offload::weights);
  key("activations", "Allow saved activations in host memory, in order to meet the budget of `memory`",
      &Offload::activations);
}

void add_exchange_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "exchange", &Recipe::exchange);
  key("transport",
      "Transport of the gradient all-reduce. host: host memory, with a fixed order of summation; nccl: NCCL "
      "or RCCL, if it passes its test, in its own order of summation",
      &Exchange::transport);
  key("compress",
      "Gradient compression between devices, with error feedback. none; bf16; fp8 (E5M2); powersgd (rank 4)",
      &Exchange::compress);
  key("local_steps", "DiLoCo: number of local updates of each device between two outer steps; 1: off",
      &Exchange::local_steps, IntegerRange{1, 1 << 20});
  key("outer_lr", "DiLoCo: learning rate of the outer step", &Exchange::outer_lr, RealRange{0, 1e6});
  key("outer_momentum", "DiLoCo: Nesterov momentum of the outer step", &Exchange::outer_momentum,
      RealRange{0, 1});
}

void add_model_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "model", &Recipe::model);
  key("name", "Image model: {}; for other models see model.path and model.config", &Model::name,
      Named{", or a language model's folder,"})
      .advice = "model=simplecnn, or model=./FOLDER with a config.json";
  key("path",
      "Language model: folder with config.json, weights and tokenizer. Image generation: diffusers folder, "
      "or weights file",
      &Model::path);
  key("config", "config.json of a new language model, or of a new model for image generation",
      &Model::config);
  key("autoencoder",
      "Image generation: folder of the autoencoder (VAE), with diffusers' config.json and weights; empty: "
      "vae in model.path. Without an autoencoder, a class-conditional model works on pixels",
      &Model::autoencoder);
  key("tokenizer",
      "Language model: folder or file of the tokenizer; empty: the folder of the model or of its config",
      &Model::tokenizer);
  key("num_classes", "Images: number of classes; 0: number in the data", &Model::num_classes,
      IntegerRange{0, 100000});
  key("class_names",
      "Images: class names by class index, e.g. [cat, dog]; empty: names in the data, which the run stores "
      "here",
      &Model::class_names);
  key("hidden", "mlp: widths of the hidden layers", &Model::hidden);
  key("dropout", "mlp, mobilenet, efficientnet: dropout probability. fcn, deeplab: 0 disables their dropout",
      &Model::dropout, RealRange{0, 1});
  key("width",
      "resnet, mobilenet, efficientnet, retinanet, fcos: channels of the stem. unet: channels of the first "
      "level. 0: default of the model",
      &Model::width, IntegerRange{0, 4096});
  key("widths",
      "Image models: numbers of channels of a smaller model, which hearth prune --method channels writes, "
      "e.g. [layer1.0.conv1=48]; coupled layers have the same number. Empty: the model's own",
      &Model::widths);
  key("frozen_norm", "retinanet, fcos: freeze the batch norms of the backbone at their values in init",
      &Model::frozen_norm);
}

void add_adapter_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "adapter", &Recipe::adapter);
  key("name", "lora: train low-rank matrices (LoRA) and freeze the weights; empty: train all weights",
      &Adapter::name);
  key("path", "PEFT adapter to start from; its rank, alpha, rslora and modules replace the keys here",
      &Adapter::path);
  key("rank", "Rank of the low-rank matrices (r in PEFT)", &Adapter::rank, IntegerRange{1, 1 << 16});
  key("alpha", "Scale of the adapter's output: alpha / rank", &Adapter::alpha, RealRange{0, 1e6});
  key("dropout", "Dropout probability of the adapter's inputs", &Adapter::dropout, RealRange{0, 1});
  key("rslora", "Scale the adapter's output by alpha / sqrt(rank) instead of alpha / rank", &Adapter::rslora);
  key("targets", "Linear layers with an adapter, e.g. [q_proj, v_proj]; all-linear: all of them",
      &Adapter::targets, OneOrMore());
  key("quantize", "Storage of frozen linear layers: nf4 (QLoRA), int8 or fp8; empty: unquantized",
      &Adapter::quantize, Named());
  key("modules_to_save", "Modules to train in full instead of with an adapter, e.g. [lm_head]",
      &Adapter::modules_to_save);
}

void add_quantize_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "quantize", &Recipe::quantize);
  key("qat",
      "Language models: round linear layers in training as hearth export does. q4_0, q8_0, int4: weights; "
      "8da4w: int4 weights and int8 inputs; w8a8, fp8: weights and inputs; empty: do not round",
      &Quantize::qat);
  key("group", "int4, 8da4w: number of adjacent weights that share a scale; 0: 128 for int4, 32 for 8da4w",
      &Quantize::group, IntegerRange{0, 1 << 16});
  key("after_steps", "Number of updates before quantize.qat begins to round", &Quantize::after_steps,
      IntegerRange{0});
}

void add_image_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "data", &Recipe::data);
  key("kind",
      "Format of the data. Images: folder (a folder per class), idx (MNIST), cifar10, shapes (generated "
      "images), tensors (safetensors). Segmentation: masks (images with masks). Detection: boxes (detects "
      "the format), coco, voc, yolo, label_studio, cvat, labelme, csv, createml. Language models: text. "
      "Image generation: captions (image-caption pairs), kohya (caches of sd-scripts)",
      &Data::kind, Named());
  key("path", "Images: folder of the dataset. Text: a .txt, .jsonl or .json file", &Data::path);
  key("allow_outside",
      "boxes, captions: read images outside of data.path, which labels refer to by absolute paths, by ../ "
      "or through links; false: refuse them",
      &Data::allow_outside);
  key("image_size", "Size of training images in pixels: side of a square, or [width, height]",
      &Data::image_size, SideRange{4, 4096});
  key("channels", "Color channels. 1: grayscale; 3: RGB", &Data::channels, IntegerRange{1, 3});
  key("count", "shapes: number of training images", &Data::count, IntegerRange{1});
  key("val_count", "shapes: number of validation images", &Data::val_count, IntegerRange{1});
  key("shuffle", "Shuffle the samples in each epoch", &Data::shuffle);
  key("balance",
      "Images: draw each class equally often (an image with several classes counts for the rarest). The "
      "length of an epoch stays the same: images of rare classes repeat, some of frequent classes are "
      "skipped",
      &Data::balance);
  key("threads", "Threads that decode images in advance; 0: none", &Data::threads, IntegerRange{0, 64});
  key("crop_padding", "Random crop after padding by this number of pixels; 0: off", &Data::crop_padding,
      IntegerRange{0, 1024});
  key("flip", "Random horizontal flip", &Data::flip);
  key("jitter", "Random change of brightness, contrast and saturation, at most by this fraction",
      &Data::jitter, RealRange{0, 1});
  key("normalize",
      "Source of mean and std. auto: config.json (timm) next to the weights in init, or the teacher in "
      "distill.from, otherwise data.mean and data.std; given: data.mean and data.std; imagenet: ImageNet's; "
      "half: 0.5 and 0.5; dataset: measured on at most 4096 training images",
      &Data::normalize);
  key("mean",
      "Mean of each channel for normalization, for pixels in [0, 1]; one value applies to all channels",
      &Data::mean);
  key("std", "Standard deviation of each channel for normalization; one value applies to all channels",
      &Data::std);
  key("resize",
      "masks: resize images to data.image_size; false: train on crops of that size and evaluate with "
      "sliding windows",
      &Data::resize);
  key("scale", "masks: range of the random scale factor of training images, e.g. [0.5, 2]", &Data::scale);
  key("classes",
      "masks: file with a line NAME or NAME,RED,GREEN,BLUE per class; empty: classes.csv, class_dict.csv or "
      "classes.txt in data.path",
      &Data::classes);
  key("keep_images",
      "folder, masks, boxes: memory for decoded images, e.g. 2GiB, so that each file is read once; shared "
      "by all devices; 0: off",
      &Data::keep_images, Bytes{"a size like 2GiB, or 0"});
  key("exif",
      "Images: orientation in EXIF (also of TIFF and AVIF). apply: rotate images upright; ignore: keep the "
      "pixels as stored",
      &Data::exif);
  key("unlabeled",
      "masks: pixel value to ignore in the loss and the metrics (ignore_index), in addition to 255. auto: "
      "only 255, unless it is a class; none: no pixel is ignored",
      &Data::unlabeled);
  key("class_numbers",
      "masks: pixel value of each class in the files, e.g. [0, 255]; empty: 0, 1, 2, ..., or detected from "
      "the values in all masks",
      &Data::class_numbers);
  key("drop_last",
      "Images: drop the last micro-batch of an epoch if it is smaller than train.batch. auto: only if the "
      "model cannot train on it (DeepLab: a single image)",
      &Data::drop_last);
}

void add_text_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "data", &Recipe::data);
  key("context", "Text: tokens in a row (sequence length)", &Data::context, IntegerRange{1, 1 << 24});
  key("val_path", "Text: validation file; empty: the last part of data.path", &Data::val_path);
  key("val_share",
      "Text, captions, folder: fraction of data.path to hold out for validation. For a folder per class, "
      "only if it has no validation split",
      &Data::val_share, RealRange{0, 1});
  key("format",
      "Text: format of the records: text, prompt_completion, alpaca, sharegpt, openai, preference; detect: "
      "detect it from the fields of each record",
      &Data::format);
  key("fields", "Text: names of fields in the data, e.g. [prompt=question, completion=answer]",
      &Data::fields);
  key("template", "Text: chat template: {} or a file; empty: template of the tokenizer", &Data::template_);
  key("date", "Text: date in chat templates, e.g. 2026-11-24; empty: day on which the run starts",
      &Data::date);
  key("variables", "Text: variables of the chat template, e.g. [enable_thinking=false]", &Data::variables);
  key("bad_records",
      "Action for unreadable records, images, masks and labels. refuse: end the run; skip: skip and count "
      "them (for a label, with its image)",
      &Data::bad_records);
  key("train_on_prompt", "Text: compute the loss on prompts too, not only on answers",
      &Data::train_on_prompt);
  key("train_on_generation_prompt",
      "Text: compute the loss also on an empty thinking block that the chat template adds to the prompt",
      &Data::train_on_generation_prompt);
  key("packing",
      "Text: pack several samples into a row; false: one sample per row, with rows of similar length in a "
      "micro-batch",
      &Data::packing);
  key("overlong",
      "Text: action for samples longer than a row: truncate, drop, split, refuse; auto: split plain text, "
      "truncate records",
      &Data::overlong);
  key("document", "Text: unit of a .txt file that is one document: file, paragraph or line", &Data::document);
  key("cache", "Folder for cached tokens, latents and embeddings; empty: ~/.cache/hearth", &Data::cache);
}

void add_train_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "train", &Recipe::train);
  key("steps", "Number of updates; 0: train.epochs decides", &Train::steps, IntegerRange{0});
  key("epochs", "Number of passes over the training data", &Train::epochs, IntegerRange{1});
  key("objective",
      "Training objective: cross_entropy; dpo (direct preference optimization); image generation: flow "
      "(flow matching), epsilon, v",
      &Train::objective);
  key("batch", "Micro-batch size: images, or rows of tokens, in a forward and backward pass", &Train::batch,
      IntegerRange{1, 1 << 20});
  key("accumulate", "Gradient accumulation: micro-batches per update, over all devices", &Train::accumulate,
      IntegerRange{1, 1 << 20});
  key("shards",
      "Number of parts of an update that are summed separately. Runs on N devices give the same bits if "
      "shards / N is 1, 2, 4, ...; 0: number of devices",
      &Train::shards, IntegerRange{0, 64});
  key("checkpoint_every", "Updates between two checkpoints", &Train::checkpoint_every, IntegerRange{1});
  key("memory_checkpoint_every",
      "Seconds between two checkpoints in memory, which an automatic restart resumes from; 0: none",
      &Train::memory_checkpoint_every, RealRange{0, 1e6});
  key("keep_checkpoints", "Number of newest checkpoints to keep", &Train::keep_checkpoints,
      IntegerRange{1, 1000});
  key("eval_every", "Updates between two evaluations; 0: once per epoch", &Train::eval_every,
      IntegerRange{0});
  key("eval_on_start", "Evaluate before the first update too", &Train::eval_on_start);
  key("log_every", "Updates between two log lines", &Train::log_every, IntegerRange{1});
  key("label_smoothing", "Label smoothing: probability that is distributed over all classes",
      &Train::label_smoothing, RealRange{0, 1});
  key("clip_norm", "Clip gradients to this global norm; 0: off", &Train::clip_norm, RealRange{0, 1e30});
  key("ema",
      "Decay of the exponential moving average of weights and running statistics, e.g. 0.999; smaller in "
      "the first updates; 0: off",
      &Train::ema, RealRange{0, 1});
  key("early_stop", "Stop after this number of evaluations without improvement; 0: off", &Train::early_stop,
      IntegerRange{0});
  key("freeze",
      "Modules to freeze, by prefixes of their names, e.g. [encoder, layer1]; their batch norms use their "
      "running statistics",
      &Train::freeze, OneOrMore());
}

void add_bad_step_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "bad_steps", &Recipe::bad_steps);
  key("max",
      "Max number of updates to roll back and skip with their samples, because loss or gradients are not "
      "finite",
      &BadSteps::max, IntegerRange{0, 1000000});
  key("z_score",
      "Also skip an update whose loss is this number of standard deviations above the mean; 0: off",
      &BadSteps::z_score, RealRange{0, 1e6});
}

void add_governor_fields(std::vector<Field>& fields) {
  section(fields, "thermal", &Recipe::thermal)(
      "limit",
      "Max junction temperature of each GPU in degrees Celsius, enforced by idling between steps and, if "
      "that is not enough, by pauses; 0: 5 below the limit of the GPU",
      &Thermal::limit, RealRange{0, 200});
  section(fields, "power", &Recipe::power)(
      "limit", "Max mean power of each GPU in watts, enforced by idling between steps; 0: no limit",
      &Power::limit, RealRange{0, 5000});
}

void add_optimizer_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "optimizer", &Recipe::optimizer);
  key("name", "Optimizer: {}", &Optimizer::name, Named());
  key("lr", "Learning rate", &Optimizer::lr, RealRange{0, 1e6});
  key("momentum", "sgd, muon: momentum", &Optimizer::momentum, RealRange{0, 1});
  key("nesterov", "sgd, muon: use Nesterov momentum", &Optimizer::nesterov);
  key("in_backward",
      "Update each weight in the backward pass as soon as its gradient is final, so that gradients need no "
      "memory. Requires train.accumulate=1 and train.clip_norm=0",
      &Optimizer::in_backward);
  key("weight_decay", "sgd: L2 regularization. Others: decoupled weight decay", &Optimizer::weight_decay,
      RealRange{0, 1e6});
  key("beta1", "adamw, lion: decay of the first moment", &Optimizer::beta1, RealRange{0, 1});
  key("beta2", "adamw: decay of the second moment. lion: decay of the momentum, usually 0.99",
      &Optimizer::beta2, RealRange{0, 1});
  key("eps", "adamw: value added to the denominator", &Optimizer::eps, RealRange{0, 1});
  key("rates",
      "Factors of the learning rate by prefixes of weight names, e.g. [encoder=0.1]; the first match applies",
      &Optimizer::rates, OneOrMore());
}

void add_schedule_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "schedule", &Recipe::schedule);
  key("name", "Learning rate schedule: constant, step, cosine, onecycle", &Schedule::name);
  key("warmup_steps", "Updates of linear warmup", &Schedule::warmup_steps, IntegerRange{0});
  key("step_size", "step: updates between two drops of the learning rate", &Schedule::step_size,
      IntegerRange{1});
  key("gamma", "step: factor of each drop", &Schedule::gamma, RealRange{0, 1e6});
  key("min_lr", "cosine: final learning rate", &Schedule::min_lr, RealRange{0, 1e6});
}

}  // namespace

const std::vector<Field>& recipe_fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> fields;
    for (const auto add : {add_run_fields,     add_pass_fields,     add_offload_fields,   add_exchange_fields,
                           add_model_fields,   add_adapter_fields,  add_quantize_fields,  add_prune_fields,
                           add_image_fields,   add_text_fields,     add_train_fields,     add_segment_fields,
                           add_detect_fields,  add_bad_step_fields, add_governor_fields,  add_dpo_fields,
                           add_distill_fields, add_diffuse_fields,  add_optimizer_fields, add_schedule_fields,
                           add_log_fields})
      add(fields);
    return fields;
  }();
  return all;
}

std::string doc_of(const Field& field, const Choices& choices) {
  const size_t at = field.doc.find(kNamesPlaceholder);
  if (at == std::string::npos) return field.doc;
  return fmt::format("{}{}{}", field.doc.substr(0, at), fmt::join(choices.of(field.key), ", "),
                     field.doc.substr(at + kNamesPlaceholder.size()));
}

}  // namespace hearth::recipe
