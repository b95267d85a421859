SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE TYPE public.studydirection AS ENUM (
    'NOT_SET',
    'MINIMIZE',
    'MAXIMIZE'
);
CREATE TYPE public.trialintermediatevaluetype AS ENUM (
    'FINITE',
    'INF_POS',
    'INF_NEG',
    'NAN'
);
CREATE TYPE public.trialstate AS ENUM (
    'RUNNING',
    'COMPLETE',
    'PRUNED',
    'FAIL',
    'WAITING'
);
CREATE TYPE public.trialvaluetype AS ENUM (
    'FINITE',
    'INF_POS',
    'INF_NEG'
);
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.studies (
    study_id integer NOT NULL,
    study_name character varying(512) NOT NULL
);
CREATE SEQUENCE public.studies_study_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.studies_study_id_seq OWNED BY public.studies.study_id;
CREATE TABLE public.study_directions (
    study_direction_id integer NOT NULL,
    direction public.studydirection NOT NULL,
    study_id integer NOT NULL,
    objective integer NOT NULL
);
CREATE SEQUENCE public.study_directions_study_direction_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.study_directions_study_direction_id_seq OWNED BY public.study_directions.study_direction_id;
CREATE TABLE public.study_system_attributes (
    study_system_attribute_id integer NOT NULL,
    study_id integer,
    key character varying(512),
    value_json text
);
CREATE SEQUENCE public.study_system_attributes_study_system_attribute_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.study_system_attributes_study_system_attribute_id_seq OWNED BY public.study_system_attributes.study_system_attribute_id;
CREATE TABLE public.study_user_attributes (
    study_user_attribute_id integer NOT NULL,
    study_id integer,
    key character varying(512),
    value_json text
);
CREATE SEQUENCE public.study_user_attributes_study_user_attribute_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.study_user_attributes_study_user_attribute_id_seq OWNED BY public.study_user_attributes.study_user_attribute_id;
CREATE TABLE public.sweep_attempt (
    attempt_id bigint NOT NULL,
    trial_id integer NOT NULL,
    number integer NOT NULL,
    token text NOT NULL,
    job text,
    array_index integer,
    slot integer,
    host text NOT NULL,
    process_group integer,
    boot_id text,
    claimed timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seen timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    first_step bigint,
    resumed_from text,
    resumed_sha256 text,
    checkpoint text,
    checkpoint_sha256 text,
    outcome text,
    reason text DEFAULT ''::text NOT NULL,
    exit_code integer,
    signal integer,
    ended timestamp with time zone
);
CREATE SEQUENCE public.sweep_attempt_attempt_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.sweep_attempt_attempt_id_seq OWNED BY public.sweep_attempt.attempt_id;
CREATE TABLE public.sweep_metric (
    trial_id integer NOT NULL,
    attempt integer NOT NULL,
    name text NOT NULL,
    step bigint NOT NULL,
    value double precision NOT NULL,
    logged double precision NOT NULL
);
CREATE TABLE public.sweep_rerun (
    rerun_id bigint NOT NULL,
    study_id integer NOT NULL,
    k integer NOT NULL,
    trial_id integer NOT NULL,
    kind text NOT NULL,
    seed bigint NOT NULL,
    token text,
    job text,
    host text,
    process_group integer,
    requested timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    claimed timestamp with time zone,
    seen timestamp with time zone,
    outcome text,
    reason text DEFAULT ''::text NOT NULL,
    exit_code integer,
    ended timestamp with time zone,
    result jsonb DEFAULT '{}'::jsonb NOT NULL
);
CREATE SEQUENCE public.sweep_rerun_rerun_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.sweep_rerun_rerun_id_seq OWNED BY public.sweep_rerun.rerun_id;
CREATE TABLE public.trial_heartbeats (
    trial_heartbeat_id integer NOT NULL,
    trial_id integer NOT NULL,
    heartbeat timestamp without time zone NOT NULL
);
CREATE SEQUENCE public.trial_heartbeats_trial_heartbeat_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trial_heartbeats_trial_heartbeat_id_seq OWNED BY public.trial_heartbeats.trial_heartbeat_id;
CREATE TABLE public.trial_intermediate_values (
    trial_intermediate_value_id integer NOT NULL,
    trial_id integer NOT NULL,
    step integer NOT NULL,
    intermediate_value double precision,
    intermediate_value_type public.trialintermediatevaluetype NOT NULL
);
CREATE SEQUENCE public.trial_intermediate_values_trial_intermediate_value_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trial_intermediate_values_trial_intermediate_value_id_seq OWNED BY public.trial_intermediate_values.trial_intermediate_value_id;
CREATE TABLE public.trial_params (
    param_id integer NOT NULL,
    trial_id integer,
    param_name character varying(512),
    param_value double precision,
    distribution_json text
);
CREATE SEQUENCE public.trial_params_param_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trial_params_param_id_seq OWNED BY public.trial_params.param_id;
CREATE TABLE public.trial_system_attributes (
    trial_system_attribute_id integer NOT NULL,
    trial_id integer,
    key character varying(512),
    value_json text
);
CREATE SEQUENCE public.trial_system_attributes_trial_system_attribute_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trial_system_attributes_trial_system_attribute_id_seq OWNED BY public.trial_system_attributes.trial_system_attribute_id;
CREATE TABLE public.trial_user_attributes (
    trial_user_attribute_id integer NOT NULL,
    trial_id integer,
    key character varying(512),
    value_json text
);
CREATE SEQUENCE public.trial_user_attributes_trial_user_attribute_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trial_user_attributes_trial_user_attribute_id_seq OWNED BY public.trial_user_attributes.trial_user_attribute_id;
CREATE TABLE public.trial_values (
    trial_value_id integer NOT NULL,
    trial_id integer NOT NULL,
    objective integer NOT NULL,
    value double precision,
    value_type public.trialvaluetype NOT NULL
);
CREATE SEQUENCE public.trial_values_trial_value_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trial_values_trial_value_id_seq OWNED BY public.trial_values.trial_value_id;
CREATE TABLE public.trials (
    trial_id integer NOT NULL,
    number integer,
    study_id integer,
    state public.trialstate NOT NULL,
    datetime_start timestamp without time zone,
    datetime_complete timestamp without time zone
);
CREATE SEQUENCE public.trials_trial_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trials_trial_id_seq OWNED BY public.trials.trial_id;
CREATE TABLE public.version_info (
    version_info_id integer NOT NULL,
    schema_version integer,
    library_version character varying(256),
    CONSTRAINT version_info_version_info_id_check CHECK ((version_info_id = 1))
);
ALTER TABLE ONLY public.studies ALTER COLUMN study_id SET DEFAULT nextval('public.studies_study_id_seq'::regclass);
ALTER TABLE ONLY public.study_directions ALTER COLUMN study_direction_id SET DEFAULT nextval('public.study_directions_study_direction_id_seq'::regclass);
ALTER TABLE ONLY public.study_system_attributes ALTER COLUMN study_system_attribute_id SET DEFAULT nextval('public.study_system_attributes_study_system_attribute_id_seq'::regclass);
ALTER TABLE ONLY public.study_user_attributes ALTER COLUMN study_user_attribute_id SET DEFAULT nextval('public.study_user_attributes_study_user_attribute_id_seq'::regclass);
ALTER TABLE ONLY public.sweep_attempt ALTER COLUMN attempt_id SET DEFAULT nextval('public.sweep_attempt_attempt_id_seq'::regclass);
ALTER TABLE ONLY public.sweep_rerun ALTER COLUMN rerun_id SET DEFAULT nextval('public.sweep_rerun_rerun_id_seq'::regclass);
ALTER TABLE ONLY public.trial_heartbeats ALTER COLUMN trial_heartbeat_id SET DEFAULT nextval('public.trial_heartbeats_trial_heartbeat_id_seq'::regclass);
ALTER TABLE ONLY public.trial_intermediate_values ALTER COLUMN trial_intermediate_value_id SET DEFAULT nextval('public.trial_intermediate_values_trial_intermediate_value_id_seq'::regclass);
ALTER TABLE ONLY public.trial_params ALTER COLUMN param_id SET DEFAULT nextval('public.trial_params_param_id_seq'::regclass);
ALTER TABLE ONLY public.trial_system_attributes ALTER COLUMN trial_system_attribute_id SET DEFAULT nextval('public.trial_system_attributes_trial_system_attribute_id_seq'::regclass);
ALTER TABLE ONLY public.trial_user_attributes ALTER COLUMN trial_user_attribute_id SET DEFAULT nextval('public.trial_user_attributes_trial_user_attribute_id_seq'::regclass);
ALTER TABLE ONLY public.trial_values ALTER COLUMN trial_value_id SET DEFAULT nextval('public.trial_values_trial_value_id_seq'::regclass);
ALTER TABLE ONLY public.trials ALTER COLUMN trial_id SET DEFAULT nextval('public.trials_trial_id_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('v3.2.0.a');
INSERT INTO public.studies VALUES (1, 'old');
INSERT INTO public.study_directions VALUES (1, 'MAXIMIZE', 1, 0);
INSERT INTO public.study_system_attributes VALUES (1, 1, 'study:metric_names', '["score"]');
INSERT INTO public.study_system_attributes VALUES (4, 1, 'sweep:folder', '"/home/ada/project/runs/old"');
INSERT INTO public.study_system_attributes VALUES (9, 1, 'sweep:cancel:sweep-old-2f59f33922', '{"time": 1795970646.589186, "what": "waiting"}');
INSERT INTO public.study_system_attributes VALUES (7, 1, 'sweep:wave:sweep-old-2f59f33922', '{"token": "sweep-old-2f59f33922", "size": 3, "throttle": 2, "executor": "local", "submitted": 1795970642.3499827, "attempts": 0, "job": "sweep-old-2f59f33922", "over": true}');
INSERT INTO public.study_system_attributes VALUES (2, 1, 'sweep:study', '{"name": "old", "command": ["python", "train.py", "--x", "{x}", "--kind", "{kind}", "--steps", "3", "--gate", "gate"], "objectives": [{"metric": "score", "direction": "maximize", "at": "last", "pattern": null}], "space": {"parameters": [{"name": "x", "type": "float", "low": 0.0, "high": 1.0, "step": null, "log": false, "choices": [], "when": {}}, {"name": "kind", "type": "categorical", "low": null, "high": null, "step": null, "log": false, "choices": ["a", "b"], "when": {}}]}, "fixed": {}, "points": [], "trials": 6, "seed": 7, "sampler": {"type": "random", "options": {}}, "pruner": {"type": "none", "options": {}}, "max_parallel": 2, "retry": {"max_attempts": 3, "max_user_failures": null}, "resources": {"time_limit_s": null, "nodes": 1, "gpus": 0, "shard": null, "mps": null, "cpus": null, "memory_mb": null}, "trial_time_s": null, "stall_time_s": null, "grace_s": 60, "tasks": null, "trials_per_task": null, "keep": 5, "executor": "local", "launcher": "auto", "slurm": {"partition": null, "account": null, "qos": null, "constraint": null, "reservation": null, "exclusive": false, "setup": [], "extra": [], "slots": 1, "service": {"partition": null, "time_limit_s": null, "extra": []}}, "environment": {"runtime": "none", "image": null, "binds": [], "workdir": null, "gpu": "auto", "env": {}, "setup": [], "options": [], "remap_root": false, "name": null}, "storage": {"url": null, "embedded": "job"}, "workdir": "/home/ada/project", "data": [], "source": "/home/ada/project/study.yaml"}');
INSERT INTO public.study_system_attributes VALUES (3, 1, 'sweep:state', '{"word": "stopped", "reason": "by `sweep stop`"}');
INSERT INTO public.study_system_attributes VALUES (19, 1, 'sweep:cancel:sweep-old-6ace0f137c', '{"time": 1795970683.980924, "what": "all"}');
INSERT INTO public.study_system_attributes VALUES (16, 1, 'sweep:wave:sweep-old-6ace0f137c', '{"token": "sweep-old-6ace0f137c", "size": 3, "throttle": 2, "executor": "local", "submitted": 1795970670.8338377, "attempts": 3, "job": "sweep-old-6ace0f137c", "over": true}');
INSERT INTO public.study_system_attributes VALUES (5, 1, 'sweep:reconciled', '1795970697.637118');
INSERT INTO public.sweep_attempt VALUES (1, 1, 1, '0ef8b821fcea2a7d65799eec273e0627', 'sweep-old-2f59f33922', 0, NULL, 'vm', 32478, 'b2c43ff2-dab3-48ad-ba80-95bc08ed3483', '2026-11-29 16:44:05.085754+00', '2026-11-29 16:44:05.75142+00', 0, NULL, NULL, NULL, NULL, 'finished', '', 0, NULL, '2026-11-29 16:44:05.751421+00');
INSERT INTO public.sweep_attempt VALUES (2, 2, 1, '62749fdd44a79c7d75649d0e2c8cc9d3', 'sweep-old-2f59f33922', 1, NULL, 'vm', 32479, 'b2c43ff2-dab3-48ad-ba80-95bc08ed3483', '2026-11-29 16:44:05.153405+00', '2026-11-29 16:44:05.829152+00', 0, NULL, NULL, NULL, NULL, 'finished', '', 0, NULL, '2026-11-29 16:44:05.829153+00');
INSERT INTO public.sweep_attempt VALUES (3, 3, 1, '16659f939bcedec76a84b207c97e177c', 'sweep-old-2f59f33922', 0, NULL, 'vm', 32482, 'b2c43ff2-dab3-48ad-ba80-95bc08ed3483', '2026-11-29 16:44:05.831667+00', '2026-11-29 16:44:06.469083+00', 0, NULL, NULL, NULL, NULL, 'finished', '', 0, NULL, '2026-11-29 16:44:06.469083+00');
INSERT INTO public.sweep_attempt VALUES (5, 4, 1, '01a99f40c29ace4cb1bc3ccfefe1d879', 'sweep-old-6ace0f137c', 0, NULL, 'vm', 458, 'b2c43ff2-dab3-48ad-ba80-95bc08ed3483', '2026-11-29 16:44:34.009967+00', '2026-11-29 16:44:44.293044+00', 0, NULL, NULL, '/home/ada/project/runs/old/trials/00003/attempts/1/checkpoints/last', '6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b', 'paused', 'the study was stopped', 0, NULL, '2026-11-29 16:44:44.293045+00');
INSERT INTO public.sweep_attempt VALUES (4, 5, 1, 'e477c8b34a81310739bd42e819f05a96', 'sweep-old-6ace0f137c', 1, NULL, 'vm', 459, 'b2c43ff2-dab3-48ad-ba80-95bc08ed3483', '2026-11-29 16:44:34.009272+00', '2026-11-29 16:44:44.367556+00', 0, NULL, NULL, '/home/ada/project/runs/old/trials/00004/attempts/1/checkpoints/last', '6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b', 'paused', 'the study was stopped', 0, NULL, '2026-11-29 16:44:44.367556+00');
INSERT INTO public.sweep_metric VALUES (1, 1, 'score', 0, 0.4918569237989835, 1795970645.504865);
INSERT INTO public.sweep_metric VALUES (1, 1, 'loss', 0, -0.4918569237989835, 1795970645.504865);
INSERT INTO public.sweep_metric VALUES (1, 1, 'score', 1, 0.6585235904656501, 1795970645.5088356);
INSERT INTO public.sweep_metric VALUES (1, 1, 'loss', 1, -0.6585235904656501, 1795970645.5088356);
INSERT INTO public.sweep_metric VALUES (1, 1, 'score', 2, 0.7418569237989835, 1795970645.5095587);
INSERT INTO public.sweep_metric VALUES (1, 1, 'loss', 2, -0.7418569237989835, 1795970645.5095587);
INSERT INTO public.sweep_metric VALUES (2, 1, 'score', 0, 0.49851775920318786, 1795970645.6008673);
INSERT INTO public.sweep_metric VALUES (2, 1, 'loss', 0, -0.49851775920318786, 1795970645.6008673);
INSERT INTO public.sweep_metric VALUES (2, 1, 'score', 1, 0.6651844258698545, 1795970645.6085482);
INSERT INTO public.sweep_metric VALUES (2, 1, 'loss', 1, -0.6651844258698545, 1795970645.6085482);
INSERT INTO public.sweep_metric VALUES (2, 1, 'score', 2, 0.7485177592031879, 1795970645.6116111);
INSERT INTO public.sweep_metric VALUES (2, 1, 'loss', 2, -0.7485177592031879, 1795970645.6116111);
INSERT INTO public.sweep_metric VALUES (3, 1, 'score', 0, 0.2221694060223366, 1795970646.2168467);
INSERT INTO public.sweep_metric VALUES (3, 1, 'loss', 0, -0.2221694060223366, 1795970646.2168467);
INSERT INTO public.sweep_metric VALUES (3, 1, 'score', 1, 0.3888360726890033, 1795970646.2208412);
INSERT INTO public.sweep_metric VALUES (3, 1, 'loss', 1, -0.3888360726890033, 1795970646.2208412);
INSERT INTO public.sweep_metric VALUES (3, 1, 'score', 2, 0.4721694060223366, 1795970646.224841);
INSERT INTO public.sweep_metric VALUES (3, 1, 'loss', 2, -0.4721694060223366, 1795970646.224841);
INSERT INTO public.sweep_metric VALUES (5, 1, 'score', 0, 0.12012669099443962, 1795970674.4248507);
INSERT INTO public.sweep_metric VALUES (5, 1, 'loss', 0, -0.12012669099443962, 1795970674.4248507);
INSERT INTO public.sweep_metric VALUES (5, 1, 'score', 1, 0.2867933576611063, 1795970674.4258974);
INSERT INTO public.sweep_metric VALUES (5, 1, 'loss', 1, -0.2867933576611063, 1795970674.4258974);
INSERT INTO public.sweep_metric VALUES (4, 1, 'score', 0, 0.2172048199045401, 1795970674.4272294);
INSERT INTO public.sweep_metric VALUES (4, 1, 'loss', 0, -0.2172048199045401, 1795970674.4272294);
INSERT INTO public.sweep_metric VALUES (4, 1, 'score', 1, 0.3838714865712068, 1795970674.4410448);
INSERT INTO public.sweep_metric VALUES (4, 1, 'loss', 1, -0.3838714865712068, 1795970674.4410448);
INSERT INTO public.trial_intermediate_values VALUES (1, 1, 0, 0.4918569237989835, 'FINITE');
INSERT INTO public.trial_intermediate_values VALUES (2, 1, 1, 0.6585235904656501, 'FINITE');
INSERT INTO public.trial_intermediate_values VALUES (3, 1, 2, 0.7418569237989835, 'FINITE');
INSERT INTO public.trial_intermediate_values VALUES (4, 2, 0, 0.49851775920318786, 'FINITE');
INSERT INTO public.trial_intermediate_values VALUES (5, 2, 1, 0.6651844258698545, 'FINITE');
INSERT INTO public.trial_intermediate_values VALUES (6, 2, 2, 0.7485177592031879, 'FINITE');
INSERT INTO public.trial_intermediate_values VALUES (7, 3, 0, 0.2221694060223366, 'FINITE');
INSERT INTO public.trial_intermediate_values VALUES (8, 3, 1, 0.3888360726890033, 'FINITE');
INSERT INTO public.trial_intermediate_values VALUES (9, 3, 2, 0.4721694060223366, 'FINITE');
INSERT INTO public.trial_intermediate_values VALUES (10, 5, 0, 0.12012669099443962, 'FINITE');
INSERT INTO public.trial_intermediate_values VALUES (11, 5, 1, 0.2867933576611063, 'FINITE');
INSERT INTO public.trial_intermediate_values VALUES (12, 4, 0, 0.2172048199045401, 'FINITE');
INSERT INTO public.trial_intermediate_values VALUES (13, 4, 1, 0.3838714865712068, 'FINITE');
INSERT INTO public.trial_params VALUES (1, 1, 'x', 0.3402389949025172, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO public.trial_params VALUES (2, 1, 'kind', 0, '{"name": "CategoricalDistribution", "attributes": {"choices": ["a", "b"]}}');
INSERT INTO public.trial_params VALUES (3, 2, 'x', 0.28849988047789477, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO public.trial_params VALUES (4, 2, 'kind', 0, '{"name": "CategoricalDistribution", "attributes": {"choices": ["a", "b"]}}');
INSERT INTO public.trial_params VALUES (5, 3, 'x', 0.7770963801598939, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO public.trial_params VALUES (6, 3, 'kind', 1, '{"name": "CategoricalDistribution", "attributes": {"choices": ["a", "b"]}}');
INSERT INTO public.trial_params VALUES (7, 4, 'x', 0.7817849002138552, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO public.trial_params VALUES (8, 4, 'kind', 0, '{"name": "CategoricalDistribution", "attributes": {"choices": ["a", "b"]}}');
INSERT INTO public.trial_params VALUES (9, 5, 'x', 0.8663386317646821, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO public.trial_params VALUES (10, 5, 'kind', 0, '{"name": "CategoricalDistribution", "attributes": {"choices": ["a", "b"]}}');
INSERT INTO public.trial_params VALUES (11, 6, 'x', 0.7036897435820255, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO public.trial_params VALUES (12, 6, 'kind', 1, '{"name": "CategoricalDistribution", "attributes": {"choices": ["a", "b"]}}');
INSERT INTO public.trial_values VALUES (1, 1, 0, 0.7418569237989835, 'FINITE');
INSERT INTO public.trial_values VALUES (2, 2, 0, 0.7485177592031879, 'FINITE');
INSERT INTO public.trial_values VALUES (3, 3, 0, 0.4721694060223366, 'FINITE');
INSERT INTO public.trials VALUES (1, 0, 1, 'COMPLETE', '2026-11-29 16:44:05.098387', '2026-11-29 16:44:05.752069');
INSERT INTO public.trials VALUES (2, 1, 1, 'COMPLETE', '2026-11-29 16:44:05.156012', '2026-11-29 16:44:05.832141');
INSERT INTO public.trials VALUES (3, 2, 1, 'COMPLETE', '2026-11-29 16:44:05.832259', '2026-11-29 16:44:06.489048');
INSERT INTO public.trials VALUES (6, 5, 1, 'WAITING', NULL, NULL);
INSERT INTO public.trials VALUES (5, 4, 1, 'RUNNING', '2026-11-29 16:44:34.010338', NULL);
INSERT INTO public.trials VALUES (4, 3, 1, 'RUNNING', '2026-11-29 16:44:34.010527', NULL);
INSERT INTO public.version_info VALUES (1, 12, '5.0.0');
SELECT pg_catalog.setval('public.studies_study_id_seq', 1, true);
SELECT pg_catalog.setval('public.study_directions_study_direction_id_seq', 1, true);
SELECT pg_catalog.setval('public.study_system_attributes_study_system_attribute_id_seq', 22, true);
SELECT pg_catalog.setval('public.study_user_attributes_study_user_attribute_id_seq', 1, false);
SELECT pg_catalog.setval('public.sweep_attempt_attempt_id_seq', 5, true);
SELECT pg_catalog.setval('public.sweep_rerun_rerun_id_seq', 1, false);
SELECT pg_catalog.setval('public.trial_heartbeats_trial_heartbeat_id_seq', 1, false);
SELECT pg_catalog.setval('public.trial_intermediate_values_trial_intermediate_value_id_seq', 13, true);
SELECT pg_catalog.setval('public.trial_params_param_id_seq', 12, true);
SELECT pg_catalog.setval('public.trial_system_attributes_trial_system_attribute_id_seq', 1, false);
SELECT pg_catalog.setval('public.trial_user_attributes_trial_user_attribute_id_seq', 1, false);
SELECT pg_catalog.setval('public.trial_values_trial_value_id_seq', 3, true);
SELECT pg_catalog.setval('public.trials_trial_id_seq', 6, true);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.studies
    ADD CONSTRAINT studies_pkey PRIMARY KEY (study_id);
ALTER TABLE ONLY public.study_directions
    ADD CONSTRAINT study_directions_pkey PRIMARY KEY (study_direction_id);
ALTER TABLE ONLY public.study_directions
    ADD CONSTRAINT study_directions_study_id_objective_key UNIQUE (study_id, objective);
ALTER TABLE ONLY public.study_system_attributes
    ADD CONSTRAINT study_system_attributes_pkey PRIMARY KEY (study_system_attribute_id);
ALTER TABLE ONLY public.study_system_attributes
    ADD CONSTRAINT study_system_attributes_study_id_key_key UNIQUE (study_id, key);
ALTER TABLE ONLY public.study_user_attributes
    ADD CONSTRAINT study_user_attributes_pkey PRIMARY KEY (study_user_attribute_id);
ALTER TABLE ONLY public.study_user_attributes
    ADD CONSTRAINT study_user_attributes_study_id_key_key UNIQUE (study_id, key);
ALTER TABLE ONLY public.sweep_attempt
    ADD CONSTRAINT sweep_attempt_pkey PRIMARY KEY (attempt_id);
ALTER TABLE ONLY public.sweep_attempt
    ADD CONSTRAINT sweep_attempt_token_key UNIQUE (token);
ALTER TABLE ONLY public.sweep_attempt
    ADD CONSTRAINT sweep_attempt_trial_id_number_key UNIQUE (trial_id, number);
ALTER TABLE ONLY public.sweep_metric
    ADD CONSTRAINT sweep_metric_pkey PRIMARY KEY (trial_id, attempt, name, step);
ALTER TABLE ONLY public.sweep_rerun
    ADD CONSTRAINT sweep_rerun_pkey PRIMARY KEY (rerun_id);
ALTER TABLE ONLY public.sweep_rerun
    ADD CONSTRAINT sweep_rerun_study_id_k_key UNIQUE (study_id, k);
ALTER TABLE ONLY public.sweep_rerun
    ADD CONSTRAINT sweep_rerun_token_key UNIQUE (token);
ALTER TABLE ONLY public.trial_heartbeats
    ADD CONSTRAINT trial_heartbeats_pkey PRIMARY KEY (trial_heartbeat_id);
ALTER TABLE ONLY public.trial_heartbeats
    ADD CONSTRAINT trial_heartbeats_trial_id_key UNIQUE (trial_id);
ALTER TABLE ONLY public.trial_intermediate_values
    ADD CONSTRAINT trial_intermediate_values_pkey PRIMARY KEY (trial_intermediate_value_id);
ALTER TABLE ONLY public.trial_intermediate_values
    ADD CONSTRAINT trial_intermediate_values_trial_id_step_key UNIQUE (trial_id, step);
ALTER TABLE ONLY public.trial_params
    ADD CONSTRAINT trial_params_pkey PRIMARY KEY (param_id);
ALTER TABLE ONLY public.trial_params
    ADD CONSTRAINT trial_params_trial_id_param_name_key UNIQUE (trial_id, param_name);
ALTER TABLE ONLY public.trial_system_attributes
    ADD CONSTRAINT trial_system_attributes_pkey PRIMARY KEY (trial_system_attribute_id);
ALTER TABLE ONLY public.trial_system_attributes
    ADD CONSTRAINT trial_system_attributes_trial_id_key_key UNIQUE (trial_id, key);
ALTER TABLE ONLY public.trial_user_attributes
    ADD CONSTRAINT trial_user_attributes_pkey PRIMARY KEY (trial_user_attribute_id);
ALTER TABLE ONLY public.trial_user_attributes
    ADD CONSTRAINT trial_user_attributes_trial_id_key_key UNIQUE (trial_id, key);
ALTER TABLE ONLY public.trial_values
    ADD CONSTRAINT trial_values_pkey PRIMARY KEY (trial_value_id);
ALTER TABLE ONLY public.trial_values
    ADD CONSTRAINT trial_values_trial_id_objective_key UNIQUE (trial_id, objective);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT trials_pkey PRIMARY KEY (trial_id);
ALTER TABLE ONLY public.version_info
    ADD CONSTRAINT version_info_pkey PRIMARY KEY (version_info_id);
CREATE UNIQUE INDEX ix_studies_study_name ON public.studies USING btree (study_name);
CREATE INDEX ix_trials_study_id ON public.trials USING btree (study_id);
CREATE INDEX sweep_attempt_live ON public.sweep_attempt USING btree (trial_id) WHERE (outcome IS NULL);
CREATE INDEX sweep_rerun_trial ON public.sweep_rerun USING btree (trial_id);
CREATE INDEX sweep_trials_open ON public.trials USING btree (study_id, trial_id) WHERE (state = ANY (ARRAY['WAITING'::public.trialstate, 'RUNNING'::public.trialstate]));
ALTER TABLE ONLY public.study_directions
    ADD CONSTRAINT study_directions_study_id_fkey FOREIGN KEY (study_id) REFERENCES public.studies(study_id);
ALTER TABLE ONLY public.study_system_attributes
    ADD CONSTRAINT study_system_attributes_study_id_fkey FOREIGN KEY (study_id) REFERENCES public.studies(study_id);
ALTER TABLE ONLY public.study_user_attributes
    ADD CONSTRAINT study_user_attributes_study_id_fkey FOREIGN KEY (study_id) REFERENCES public.studies(study_id);
ALTER TABLE ONLY public.sweep_attempt
    ADD CONSTRAINT sweep_attempt_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id) ON DELETE CASCADE;
ALTER TABLE ONLY public.sweep_metric
    ADD CONSTRAINT sweep_metric_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id) ON DELETE CASCADE;
ALTER TABLE ONLY public.sweep_rerun
    ADD CONSTRAINT sweep_rerun_study_id_fkey FOREIGN KEY (study_id) REFERENCES public.studies(study_id) ON DELETE CASCADE;
ALTER TABLE ONLY public.sweep_rerun
    ADD CONSTRAINT sweep_rerun_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id) ON DELETE CASCADE;
ALTER TABLE ONLY public.trial_heartbeats
    ADD CONSTRAINT trial_heartbeats_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id);
ALTER TABLE ONLY public.trial_intermediate_values
    ADD CONSTRAINT trial_intermediate_values_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id);
ALTER TABLE ONLY public.trial_params
    ADD CONSTRAINT trial_params_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id);
ALTER TABLE ONLY public.trial_system_attributes
    ADD CONSTRAINT trial_system_attributes_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id);
ALTER TABLE ONLY public.trial_user_attributes
    ADD CONSTRAINT trial_user_attributes_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id);
ALTER TABLE ONLY public.trial_values
    ADD CONSTRAINT trial_values_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT trials_study_id_fkey FOREIGN KEY (study_id) REFERENCES public.studies(study_id);
